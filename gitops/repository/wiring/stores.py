"""Builds a cluster folder's workspace, stores and compile cache. Heavy drivers are imported on demand.

These variables determine the user's compile cache, if any:

    GITOPS_CACHE=off        use no cache, like `--no-cache`
    GITOPS_CACHE_DIR        the folder of the cache; in CI, there is no cache without it
    XDG_CACHE_HOME, HOME    otherwise, the cache is `cluster-gitops` in the first, or in `.cache` of the second
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from posixpath import join
from typing import TYPE_CHECKING, cast

from gitops.cluster.ledger.layout import graph_root
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.core.faults import Faults, NoFaults
from gitops.core.late import Late
from gitops.core.redact import Secret, resolve
from gitops.database.executor.version import source_digest
from gitops.database.storage.local import LocalStore
from gitops.database.storage.port import ObjectStore, StorageKind, StorageRootError, parse_storage
from gitops.repository.wiring.hosts import open_hosts
from gitops.repository.wiring.system import RandomIds, SystemClock, process_has_ended

if TYPE_CHECKING:
    from gitops.cluster.config.cache import CompileCache
    from gitops.cluster.model.compute import ComputeTarget
    from gitops.cluster.session.workspace import Stores, Workspace
    from gitops.cluster.targets.port import StrategyTarget
    from gitops.database.graph import Embedder
    from gitops.database.graph.port import Existence, GraphEngine
    from gitops.database.storage.s3 import S3Store

_BUCKET_WORKERS = 16
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_OFF = frozenset({"off", "0", "no", "false"})
# What a compile cache entry depends on: the languages, the loader, and the names and digests of the files that it
# loads.
_SOURCES = ("core", "database/language", "cluster/model", "cluster/policy", "cluster/config", "git")


def folder_workspace(
    folder: str, *, actor: str | None, workers: int | None = None, ephemeral: bool = False, faults: Faults | None = None
) -> Workspace:
    """Return the workspace of a cluster folder on disk, with its ledger in a folder.

    `ephemeral` means that the folder is a temporary checkout, in which graph data must not be stored.
    """
    # Commands on a graph's rows need the locations in this module, but not the control plane.
    from gitops.cluster.config.folder import FolderTree
    from gitops.cluster.session.workspace import Stores, Workspace

    clock, faults = SystemClock(), faults or NoFaults()

    def open_stores(storage: str | None) -> Stores:
        # A command that only checks the folder opens no ledger.
        from gitops.cluster.ledger.folder import FolderLedger
        from gitops.cluster.ledger.served import ServingReports

        root = storage_root(storage, folder)
        problem = None
        if ephemeral and storage is None:
            problem = GitopsError(
                Code.EPHEMERAL_GRAPH_ROOT,
                "graphs would be stored in a checkout of a CI job; declare storage",
                path="storage",
            )
        return Stores(
            ledger=FolderLedger(
                open_store(root),
                clock=clock,
                faults=faults,
                has_ended=(lambda _: False) if root.startswith("s3:") else process_has_ended,
            ),
            engine=graph_engine(faults),
            graph_uri=lambda graph: graph_uri(root, graph),
            data_problem=problem,
            workers=workers_at(root),
            reports=ServingReports(lambda: open_store(root)),
        )

    return Workspace(
        tree=FolderTree(folder, confined=True),
        config_dir=folder,
        open_stores=open_stores,
        clock=clock,
        ids=RandomIds(),
        actor=actor,
        workers=workers,
        faults=faults,
        pid=os.getpid(),
        open_target=partial(declared_target, os.environ),
        open_hosts=partial(open_hosts, os.environ),
    )


def has_bucket_credentials() -> bool:
    """Return whether the environment has credentials for buckets.

    The identity of a machine is not looked for: the client would wait for a service that most machines do not have.
    """
    return any(os.environ.get(name) for name in _CREDENTIALS)


def storage_root(storage: str | None, folder: str) -> str:
    """Return the absolute path or `s3:` address of a declared storage root. The default is the cluster folder.

    `storage` is valid: it has passed the checks of the folder.
    """
    if storage is None:
        return str(Path(folder).absolute())
    declared = parse_storage(storage)
    if declared.kind is StorageKind.S3:
        return declared.text
    return declared.local_path(os.path.abspath(folder))  # noqa: PTH100 - links stay as they are


def admitted_root(storage: str, base: str | None, allowed: str | None, cluster: str) -> str:
    """Return the storage root that a declaration in git selects. It must be inside a root that the operator set.

    A path must be below the folder `base`, a bucket and prefix must be `allowed` or below it, part by part. Raises
    GitopsError `storage_root_refused`, `storage_root_invalid`.
    """
    declared = parse_storage(storage)
    if declared.kind is StorageKind.LOCAL:
        if base is None:
            raise _refused("a path in git cannot select a folder on this host")
        chosen = Path(os.path.normpath(Path(base) / declared.path))
        if not chosen.is_relative_to(base):
            raise _refused(f"{declared.text!r} is outside {base}")
        return str(chosen)
    if allowed is None:
        raise _refused("a path in git cannot select a bucket; the operator allows one with git config gitops.storage")
    try:
        own = parse_storage(allowed)
    except StorageRootError as error:
        raise GitopsError(Code.STORAGE_ROOT_INVALID, f"git config gitops.storage: {error}", path=cluster) from None
    inside = declared.prefix == own.prefix or not own.prefix or declared.prefix.startswith(f"{own.prefix}/")
    if own.kind is not StorageKind.S3 or own.bucket != declared.bucket or not inside:
        raise _refused(f"{declared.text!r} is outside {allowed}")
    return declared.text


def _refused(detail: str) -> GitopsError:
    return GitopsError(Code.STORAGE_ROOT_REFUSED, detail, path="storage")


def open_store(root: str) -> ObjectStore:
    """Return the object store at a storage root.

    Raises GitopsError `storage_driver_missing`, `storage_root_invalid`.
    """
    return open_bucket(root) if root.startswith("s3:") else LocalStore(root)


def open_bucket(root: str) -> S3Store:
    """Return the object store below a bucket prefix. Raises the same errors as `open_store`."""
    # The client is large, so commands on a folder don't load it.
    from gitops.database.storage.s3 import S3Store

    return S3Store(root)


def workers_at(root: str | None) -> int:
    """Return the number of changes that should run concurrently for data at a root.

    In a bucket, each change mostly waits for responses.
    """
    return _BUCKET_WORKERS if root is not None and root.startswith("s3:") else 1


def graph_uri(root: str, graph: str) -> str:
    """Return a graph's location below a storage root. Raises ValueError for an invalid id."""
    return join(root, graph_root(graph))


def graph_engine(faults: Faults) -> GraphEngine:
    """Return the embedded engine. It is loaded only if a caller needs to know more than whether a graph exists.

    Most plans don't read any graph. The engine imports Lance only when it writes.
    """

    def exists(uri: str) -> Existence:
        from gitops.database.graph.presence import existence

        return existence(uri)

    def make() -> GraphEngine:
        from gitops.database.graph import LanceEngine

        return LanceEngine(SystemClock(), RandomIds(), faults, lambda: open_embedder(None, os.environ))

    return cast("GraphEngine", Late(make, exists=exists))


def open_embedder(named: str | None, environ: Mapping[str, str]) -> Embedder | None:
    """Return a text embedder: `hash`, or `MODEL@https://HOST/v1` with the key in GITOPS_EMBEDDINGS_KEY.

    The default is the value of GITOPS_EMBEDDINGS. Returns None if that is not set. Raises UsageError `usage_error`,
    GitopsError `embedding_failed` for an invalid address.
    """
    spec = named or environ.get("GITOPS_EMBEDDINGS", "")
    if not spec:
        return None
    if spec == "hash":
        from gitops.database.graph import HashEmbedder

        return HashEmbedder()
    model, at, base = spec.partition("@")
    if not at or not model:
        raise UsageError(Code.USAGE_ERROR, f"--embeddings {spec[:80]!r}: use hash, or MODEL@https://HOST/v1")
    import time

    from gitops.database.graph import ServiceEmbedder
    from gitops.forge.client import Service, WebClient

    key = resolve("${GITOPS_EMBEDDINGS_KEY}", environ)
    headers = {} if key is None else {"Authorization": key.prefixed("Bearer ")}
    client = WebClient(Service(base, Code.EMBEDDING_FAILED, headers), time.sleep, SystemClock())
    return ServiceEmbedder(client.post, model)


def with_compile_cache(workspace: Workspace) -> Workspace:
    """Return a read-only command's workspace. For a folder, it uses the user's compile cache."""
    from gitops.cluster.config.cache import Hints
    from gitops.cluster.config.folder import FolderTree

    tree = workspace.tree
    if not isinstance(tree, FolderTree) or (cache := compile_cache(os.environ)) is None:
        return workspace
    return replace(workspace, hints=Hints(tree.at(int(workspace.clock.now().timestamp() * 1_000_000_000)), cache))


def compile_cache(environ: Mapping[str, str]) -> CompileCache | None:
    """Return the cache that the environment selects, if any."""
    from gitops.cluster.config.disk_cache import DiskCache

    folder = cache_folder(environ)
    made_by = None if folder is None else edition()
    return None if folder is None or made_by is None else DiskCache(folder, made_by)


@cache
def edition() -> str | None:
    """Return a digest of the sources that interpret a folder, and of the running Python, or None if they cannot be read.

    Computed once, because a process that is still running after an upgrade runs the earlier code.
    """
    return source_digest(_SOURCES)


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of the persistent cache that the environment selects, or None for no cache."""
    if environ.get("GITOPS_CACHE", "").lower() in _OFF:
        return None
    if environ.get("GITOPS_CACHE_DIR"):
        return Path(environ["GITOPS_CACHE_DIR"])
    # A later job that runs untrusted code could otherwise restore the cache that this job leaves behind.
    if environ.get("CI", "").lower() in ("1", "true"):
        return None
    base = environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return None
        base = f"{home}/.cache"
    return Path(base) / "cluster-gitops"


# -- Open the targets of strategies. The adapter is imported when a target is opened -----------------------------------


def open_target(place: str, url: Secret, *, application_name: str, query_cluster: str | None = None) -> StrategyTarget:
    """Return a Materialize target, which connects when its context is entered.

    `place` identifies it in problems: `compute.targets.prod`.

    The three tables are read on the compute cluster `query_cluster`, or on the role's default, which must have a
    replica. Raises UsageError `target_url_invalid`; entering raises UsageError `materialize_unavailable` if the driver
    is not installed.
    """
    from gitops.compute.materialize.connection import TargetAddress
    from gitops.compute.materialize.target import MaterializeTarget

    return MaterializeTarget(TargetAddress(place, url, application_name, query_cluster))


def declared_target(
    environ: Mapping[str, str], target: ComputeTarget, *, query_cluster: str | None = None
) -> StrategyTarget:
    """Return a declared target, with the URL from the environment.

    Raises UsageError `target_url_missing`, and the errors of `open_target`.
    """
    from gitops.cluster.targets.projection import place_of

    place, url = place_of(target.name), environ.get(target.url_env)
    if not url:
        raise UsageError(
            Code.TARGET_URL_MISSING, f"the environment variable {target.url_env} is not set here", path=place
        )
    secret, name = Secret(target.url_env, url), target.application_name
    return open_target(place, secret, application_name=name, query_cluster=query_cluster)
