"""A cluster's location. Approvals refer to it, and a merge alone never changes it."""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.model.approval import ClusterTarget
from gitops.core.canonical import canonical_digest
from gitops.core.dataclass import dataclass

DEFAULT_STORAGE = "default"
"""Shown if a cluster folder does not declare a storage."""

UNKNOWN_STORAGE = "<unknown>"
"""The storage of a first-release ledger whose newest source commit is missing. It differs from all declarations."""


@dataclass(frozen=True, slots=True)
class ClusterScope:
    """A cluster's location, which approvals refer to.

    `storage` is the value in `cluster.yaml`, or None for the default. `home` is the name under which the storage keeps
    its graphs: the first name of the cluster, which a rename does not change. `closed` means that the cluster was
    removed from `gitops.yaml`, and that this was approved.
    """

    target: ClusterTarget
    storage: str | None
    home: str
    closed: bool = False

    @property
    def digest(self) -> str:
        """The scope's digest, which identifies it (64 hex digits)."""
        target = self.target
        return canonical_digest(
            {
                "repository": target.repository,
                "cluster": target.cluster,
                "environment": target.environment,
                "ref": target.ref,
                "path": target.path,
                "storage": self.storage,
                "home": self.home,
                "closed": self.closed,
            }
        )

    def facts(self) -> dict[str, str]:
        """Return the scope's parts for reports, by their names in the configuration."""
        target = self.target
        return {
            "name": target.cluster,
            "path": target.path,
            "branch": target.ref.removeprefix("refs/heads/"),
            "environment": target.environment,
            "repository": target.repository,
            "storage": DEFAULT_STORAGE if self.storage is None else self.storage,
        }


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """A change to a cluster's location. `before` is None without a ledger, `after` if `gitops.yaml` no longer lists it.

    `successor` is the name of a new cluster that replaces a removed one, so this can be a rename.
    """

    before: ClusterScope | None
    after: ClusterScope | None
    successor: str | None = None

    @property
    def cluster(self) -> str:
        """The name of the cluster whose ledger records the change."""
        found = self.before or self.after
        return "" if found is None else found.target.cluster

    @property
    def recorded(self) -> ClusterScope | None:
        """The scope that is in force after the change."""
        return replace(self.before, closed=True) if self.after is None and self.before is not None else self.after

    def details(self, graphs: int) -> tuple[str, ...]:
        """Describe the change and what it leaves behind. `graphs` is the number of graphs in the ledger."""
        before, after = self.before, self.after
        if before is None:
            return () if after is None else tuple(f"{name}: {fact}" for name, fact in after.facts().items())
        was, count = before.facts(), f"{graphs} graph{' is' if graphs == 1 else 's are'}"
        if after is None:
            name, new = was["name"], self.successor
            rename = f"to rename {name} to {new}, add renamed_from: {name} to the entry of {new}: that keeps ledger and graphs"
            return (
                f"{count} left in storage {was['storage']} without a ledger",
                f"branch gitops/ledger/{name} is left with its last entry",
                *([rename] if new else []),
            )
        now = after.facts()
        lines = [f"{name}: {was[name]} becomes {now[name]}" for name in was if was[name] != now[name]]
        if before.closed:
            lines.append("the cluster is added again with its closed ledger")
        if was["name"] != now["name"]:
            lines.append(f"the ledger continues as gitops/ledger/{now['name']}, with all debts and used approvals")
        if before.storage != after.storage and graphs:
            lines.append(f"{count} not copied: the folder of each has to be in {now['storage']} before this is applied")
        return tuple(lines)
