"""Step 8 of a load: whether the policies of a folder can be enforced, and decide what is expected of them.

Each policy file is read, and held against what it is bound to; a scope has one policy. Then the cases are decided that lie beside
`cluster.yaml` and beside the policy files, in `*.test.yaml` and `policy.tests.yaml`. A file that an earlier load found without
problems, bound to the same kinds of scopes, is not read again: only soundness is kept, as for queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from gitops.cluster.config.cache import SoundPairs
from gitops.cluster.config.configuration import Configuration
from gitops.cluster.config.declaration import DeclaredPolicy
from gitops.cluster.config.reader import SourceFile, SourceReader
from gitops.cluster.config.source import SourceError
from gitops.cluster.model.address import Address, graph_address, is_name, is_servable
from gitops.cluster.model.resource import GraphDeclaration
from gitops.cluster.policy.bind import BoundBundle, Enforced, bind, check_kinds, conflicts, kind_of
from gitops.cluster.policy.bundle import Bundle
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity, SourceRef
from gitops.database.language.yaml import shown

__all__ = ["Judgement", "LoadedPolicy", "case_files", "judge", "read_policy"]

_CASES = (".test.yaml", "policy.tests.yaml")


class LoadedPolicy(NamedTuple):
    """A policy with its file and the scopes that it is bound to, normalized."""

    declared: DeclaredPolicy
    file: SourceFile
    scopes: tuple[str, ...]

    @property
    def at(self) -> str:
        """Its path in `cluster.yaml`."""
        return f"policies.{shown(self.declared.name.value)}"


class Judgement(NamedTuple):
    """The policies that were judged, and how many cases the folder has."""

    policies: tuple[LoadedPolicy, ...] = ()
    cases: int = 0


def check_bundle(policy: LoadedPolicy, found: Diagnostics, sound: SoundPairs | None) -> None:
    """Report the problems of a policy file, as it is bound."""
    pair = "policy " + " ".join(sorted({kind_of(scope) for scope in policy.scopes})), policy.file.digest
    if sound is not None and sound.names(*pair) is not None:
        return
    _, problems = read_policy(policy)
    found.extend(problems)
    if sound is not None and not len(problems):
        sound.add(*pair, ())


def read_policy(policy: LoadedPolicy) -> tuple[Bundle | None, Diagnostics]:
    """The bundle of a policy file, None if it has errors; and its problems as it is bound."""
    # A load that finds everything known to be sound does not import the reader.
    from gitops.cluster.policy.read import read_bundle

    at = f"{policy.at}.file"
    bundle, problems = read_bundle(policy.file.data, policy.file.path, at)
    if bundle is not None:
        bound = BoundBundle(policy.declared.name.value, bundle, policy.scopes, policy.file.path)
        problems.extend(check_kinds(bound, at))
    return None if problems.has_errors else bundle, problems


def check_bindings(policies: Collection[LoadedPolicy], found: Diagnostics) -> None:
    """Report each further policy of a scope that has one."""
    named = {policy.declared.name.value: policy for policy in policies}
    for scope, names in conflicts({name: policy.scopes for name, policy in named.items()}).items():
        for name in names[1:]:
            policy = named[name]
            message = f"{scope} has the policy {names[0]} already"
            found.add(
                Code.DUPLICATE_POLICY_BINDING, f"{policy.at}.applies_to", message, source=policy.declared.name.source
            )


def enforced_by(policies: Collection[LoadedPolicy]) -> Mapping[str, Enforced]:
    """What is enforced on each scope; a policy that has errors is left out."""
    bundles = ((policy, read_policy(policy)[0]) for policy in policies)
    bound = (BoundBundle(p.declared.name.value, b, p.scopes, p.file.path) for p, b in bundles if b is not None)
    return bind(bound)[0]


def case_files(policies: Collection[LoadedPolicy], reader: SourceReader) -> Iterator[SourceFile]:
    """The files beside the configuration and the policies that have cases; one that cannot be read is reported."""
    folders = {".", *(policy.file.path.rpartition("/")[0] or "." for policy in policies)} if policies else set()
    for folder in sorted(folders):
        try:
            names = reader.tree.names(folder)
        except SourceError as error:
            message = f"the folder is not searched for cases: {error.detail}"
            reader.found.add(error.code, folder, message, severity=Severity.WARNING)
            continue
        for name in names:
            if name.endswith(_CASES):
                path = name if folder == "." else f"{folder}/{name}"
                file = reader.file(path, path, SourceRef(path), missing=Code.POLICY_TESTS_INVALID)
                if file is not None and b"cases" in file.data:
                    yield file


def judge(
    config: Configuration,
    policies: Collection[LoadedPolicy],
    reader: SourceReader,
    sound: SoundPairs | None,
    compiled: Callable[[str], GraphDeclaration],
) -> Judgement:
    """Take step 8; problems go to the reader. `compiled` gives a graph of a folder without errors."""
    found, graphs = reader.found, config.form["graphs"]
    for policy in policies:
        check_bundle(policy, found, sound)
    check_bindings(policies, found)
    for graph in graphs:
        if is_name(graph) and not is_servable(graph):
            message = f"no server can serve a graph with the id '{graph}'"
            place = config.graph(graph).id.source
            found.add(Code.GRAPH_ID_UNSERVABLE, graph_address(graph), message, source=place)
    files = tuple(case_files(policies, reader))
    if not files:
        return Judgement(tuple(policies))
    from gitops.cluster.policy.cases import Guarded, failures, read_cases

    def writes(scope: str, query: str) -> bool | None:
        checked = compiled(Address(scope).graph or "").queries.get(query)
        return None if checked is None else bool(checked.writes)

    cases = [(file, *read_cases(file.data, file.path)) for file in files]
    for _, _, problems in cases:
        found.extend(problems)
    if not found.has_errors:
        guarded = Guarded(enforced_by(policies), graphs, writes)
        for file, read, _ in cases:
            for case in read:
                found.extend(failures(case, file.path, guarded))
    return Judgement(tuple(policies), sum(len(read) for _, read, _ in cases))
