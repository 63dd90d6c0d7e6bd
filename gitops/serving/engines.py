"""Compiled policies: the one that a bundle is compiled to first proves it, and those of its further graphs are made when needed.

Of one bundle, the policies of two graphs differ by the id of the graph alone, so that Cedar accepts all of them or none.
"""

from __future__ import annotations

from gitops.cluster.policy.bind import Enforced, kind_of
from gitops.cluster.policy.bundle import Bundle, EngineKind
from gitops.cluster.policy.cedar import CedarEngine
from gitops.cluster.policy.decide import AccessDecision, AccessRequest, PolicyEngine

__all__ = ["PolicyCompiler"]


class PolicyCompiler:
    """Compiles the policies of one boot."""

    def __init__(self) -> None:
        self._proven: set[tuple[str, EngineKind]] = set()

    def compile(self, enforced: Enforced) -> PolicyEngine:
        """What decides on a scope. Raises GitopsError `policy_invalid` if Cedar refuses the bundle."""
        proof = (enforced.policy, kind_of(enforced.scope))
        if proof in self._proven:
            return _LateEngine(enforced)
        engine = CedarEngine(enforced.bundle, enforced.scope)
        self._proven.add(proof)
        return engine


class _LateEngine:
    """Is compiled for its first decision. Two threads that both ask first may both compile it."""

    def __init__(self, enforced: Enforced) -> None:
        self._enforced = enforced
        self._engine: CedarEngine | None = None

    @property
    def bundle(self) -> Bundle:
        """The rules that it decides by."""
        return self._enforced.bundle

    def decide(self, request: AccessRequest) -> AccessDecision:
        """As the compiled policy decides."""
        if self._engine is None:
            self._engine = CedarEngine(self._enforced.bundle, self._enforced.scope)
        return self._engine.decide(request)
