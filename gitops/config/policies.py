"""Step 8 of a load: whether the policies of a folder can be enforced.

Each policy file is read, and held against what it is bound to; a scope has one policy. A file that an earlier load found without
problems, bound to the same kinds of scopes, is not read again: only soundness is kept, as for queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gitops.config.cache import SoundPairs
from gitops.config.declaration import DeclaredPolicy
from gitops.config.reader import SourceFile
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.language.yaml import shown
from gitops.policy.bind import BoundBundle, check_kinds, conflicts, kind_of
from gitops.policy.bundle import Bundle

__all__ = ["LoadedPolicy", "check_bindings", "check_bundle"]


class LoadedPolicy(NamedTuple):
    """A policy with its file and the scopes that it is bound to, normalized."""

    declared: DeclaredPolicy
    file: SourceFile
    scopes: tuple[str, ...]

    @property
    def at(self) -> str:
        """Its path in `cluster.yaml`."""
        return f"policies.{shown(self.declared.name.value)}"


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
    from gitops.policy.read import read_bundle

    at = f"{policy.at}.file"
    bundle, problems = read_bundle(policy.file.data, policy.file.path, at)
    if bundle is not None:
        bound = BoundBundle(policy.declared.name.value, bundle, policy.scopes, policy.file.path)
        problems.extend(check_kinds(bound, at))
    return None if problems.has_errors else bundle, problems


def check_bindings(policies: Mapping[str, LoadedPolicy], found: Diagnostics) -> None:
    """Report each further policy of a scope that has one."""
    for scope, names in conflicts({name: each.scopes for name, each in policies.items()}).items():
        for name in names[1:]:
            policy = policies[name]
            message = f"{scope} has the policy {names[0]} already"
            found.add(
                Code.DUPLICATE_POLICY_BINDING, f"{policy.at}.applies_to", message, source=policy.declared.name.source
            )
