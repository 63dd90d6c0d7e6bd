"""A change of a cluster folder that a command proposes: a commit that is built from trees, to be reviewed as a change request.

No work tree, index or ref is touched. Only what a cluster declares moves: `cluster.yaml`, schemas, queries and policies. Other
files of its folder stay, also where the folder is the whole repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.config.load import Loaded
from gitops.cluster.config.sound import ContentTree
from gitops.cluster.config.source import normalize
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.git.port import NewCommit, Person
from gitops.repository.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Root tree `new` instead of `old`, that of commit `base`, the head of the branch of cluster `rule`; and why."""

    rule: ClusterRule
    base: str
    old: str
    new: str
    message: str

    @property
    def ref(self) -> str:
        """The branch of the cluster."""
        return self.rule.ref


def proposed_commit(project: Project, proposal: Proposal, person: Person, signing_key: str | None) -> str:
    """Write the commit of a proposal, on top of its base. Raises GitopsError `signing_failed`."""
    author = replace(person, time=int(project.tools.clock.now().timestamp()))
    new = NewCommit(proposal.new, (proposal.base,), author, proposal.message)
    return project.tools.store.write_commit(new, signing_key=signing_key)


def cluster_folder(project: Project, root: str, rule: ClusterRule) -> ContentTree:
    """The folder of a cluster in a root tree. Raises GitopsError `cluster_not_found`."""
    tree = project.tools.store.subtree(root, rule.path)
    if tree is None:
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"folder {rule.path} does not exist", path=rule.name)
    return project.tools.open_tree(project.tools.store, tree, rule.path)


def declared_files(loaded: Loaded) -> dict[str, bytes]:
    """Schemas, queries and policies of a cluster folder, by path."""
    return {normalize(each.path, confined=True): each.content or b"" for each in loaded.resources.values() if each.path}


def below(folder: str, files: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    """Paths of a cluster folder as paths of the repository."""
    return dict(files) if folder == "." else {f"{folder}/{path}": content for path, content in files.items()}
