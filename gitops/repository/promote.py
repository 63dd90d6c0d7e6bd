"""`promote`: bring what is applied in one cluster to another one of the same repository, as one commit to be reviewed.

Steps:

1. The files that the first cluster declares are read at the source commit of its newest ledger entry: what is applied, not what
   is merged. Other files of its folder are not part of what is applied, and are not promoted.
2. They replace, in the folder of the second cluster at the head of its branch, what that one declares. In its `cluster.yaml` only
   graphs and policies are replaced, as `gitops.cluster.config.cluster_yaml` says.
3. A file that the second cluster would still declare, such as a query left in a folder of queries, is removed as well.
4. The commit is built from trees; no work tree, index or ref is touched.
"""

from __future__ import annotations

from gitops.cluster.config.cluster_yaml import promoted_config
from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import SourceError
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, UsageError
from gitops.database.language.yaml import YamlError
from gitops.repository.cluster import LedgerPosition, declared_rule
from gitops.repository.project import Project
from gitops.repository.proposal import Proposal, below, cluster_folder, declared_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion(Proposal):
    """What a promotion changes of the cluster that gets it; `applied` is the commit that was promoted.

    `stays` are files of its folder that neither cluster declares, and that the folder of the first one does not have.
    """

    applied: str
    stays: tuple[str, ...]


def promotion(project: Project, source: ClusterRule, position: LedgerPosition, target: ClusterRule) -> Promotion:
    """What a promotion from `source`, whose ledger is at `position`, to `target` changes.

    Raises UsageError `usage_error` for a cluster and itself, GitopsError `ledger_missing`, `cluster_not_found`,
    `promotion_refused`.
    """
    if source.name == target.name:
        fix = f"name two clusters: gitops promote {source.name} CLUSTER"
        raise UsageError(Code.USAGE_ERROR, f"{source.name} cannot be promoted to itself", fix=fix)
    declared = declared_rule(project.config(), target.name)
    base = None if declared is None else project.head_of(declared.ref)
    if declared is None or base is None:
        where = "gitops.yaml does not declare it" if declared is None else f"branch {declared.branch} does not exist"
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"{target.name}: {where}", path=target.name)
    if position.applied is None:
        fix = f"apply it first: merge to branch {source.branch}, or: gitops import --cluster {source.name}"
        detail = f"{source.name} has no ledger, so nothing of it is applied"
        raise GitopsError(Code.LEDGER_MISSING, detail, path=source.name, fix=fix)
    project.fetch_commits(position.applied)

    # 1
    store = project.tools.store
    old, applied = store.commit(base).tree, store.commit(position.applied).tree
    origin, place = cluster_folder(project, applied, source), cluster_folder(project, old, declared)
    meant = load_desired(origin, applied=True)
    if meant.desired is None:
        detail = f"what {source.name} has applied cannot be read by this release"
        fix = f"see its problems: gitops status --cluster {source.name}"
        raise GitopsError(Code.PROMOTION_REFUSED, detail, path=source.name, fix=fix)
    files = declared_files(meant)
    # 2
    try:
        config = promoted_config(origin.reopened().read(CONFIG_FILE), place.reopened().read(CONFIG_FILE))
    except (YamlError, SourceError) as error:
        raise GitopsError(Code.PROMOTION_REFUSED, f"{CONFIG_FILE}: {error}", path=declared.name) from error
    if config is None:
        detail = f"a top-level key of {CONFIG_FILE} of {source.name} or {declared.name} does not begin its line"
        raise GitopsError(Code.PROMOTION_REFUSED, detail, path=declared.name)
    gone = dict.fromkeys(declared_files(load_desired(place)).keys() - files.keys())
    new = store.write_files(old, below(declared.path, {**gone, **files, CONFIG_FILE: config}))
    # 3
    declares = load_desired(cluster_folder(project, new, declared))
    if declares.digests() != meant.digests() or declares.diagnostics.has_errors:
        # Only its problem names a file that cannot be read.
        broken = {each.source.file for each in declares.diagnostics if each.source is not None}
        left = dict.fromkeys({*declared_files(declares), *broken} - {CONFIG_FILE, *files})
        new = store.write_files(new, below(declared.path, left))
    known = {CONFIG_FILE, *files, *_paths(project, applied, source)}
    stays = tuple(path for path in _paths(project, new, declared) if path not in known)
    message = f"Promote {source.name} to {declared.name}\n\n"
    message += f"This is what {source.name} has applied of commit {position.applied}.\n"
    return Promotion(rule=declared, base=base, old=old, new=new, message=message, applied=position.applied, stays=stays)


def _paths(project: Project, root: str, rule: ClusterRule) -> tuple[str, ...]:
    tree = project.tools.store.subtree(root, rule.path)
    return () if tree is None else project.tools.store.changed_paths(None, tree)
