"""Opens the cluster for `gitops serve`: a cluster folder, a bare storage root, or a cluster in a repository."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.layout import STATE
from gitops.cluster.ledger.served import ServingReports, past_ledger
from gitops.cluster.model.use import USE_NAMESPACE
from gitops.cluster.session.workspace import Stores
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.core.faults import NoFaults
from gitops.core.redact import Secret, resolve
from gitops.database.storage.port import StorageRootError, parse_storage
from gitops.forge.client import Service, WebClient
from gitops.forge.web import WebSender
from gitops.git.signatures import read_public_key, sign
from gitops.repository.wiring.stores import graph_engine, graph_uri, open_store, storage_root, workers_at
from gitops.repository.wiring.system import SystemClock

if TYPE_CHECKING:
    from gitops.repository.served_previews import ServedPreviews

_MANIFEST = "cluster.yaml"


@dataclass(frozen=True, slots=True)
class ServedSource:
    """The source of the cluster to serve.

    `cluster` is a folder or the URI of a storage root. With a repository `repo`, it is the name of one of its clusters,
    whose ledger is on `remote`. `revision` is the digest of a past state to serve instead of the newest one.
    """

    cluster: str
    repo: str | None = None
    remote: str | None = None
    revision: str | None = None


def open_served(source: ServedSource, found: Diagnostics) -> Stores | None:
    """Return the cluster's stores. If its configuration has problems, add them to `found` and return None.

    Raises GitopsError `config_dir_not_found`, `cluster_config_read_error`, `storage_root_invalid`,
    `storage_driver_missing`, `cluster_not_found`, UsageError `not_a_repository`.
    """
    if source.repo is not None:
        return _of_repository(source, source.repo)
    root = served_root(source, found)
    if root is None:
        return None
    stores = stores_at(root)
    if source.revision is None:
        return stores
    return replace(stores, ledger=past_ledger(stores.ledger, source.revision))


def stores_at(root: str) -> Stores:
    """Return the stores of a storage root with a ledger folder. Raises the errors of `open_store`."""
    return Stores(
        ledger=FolderLedger(open_store(root), clock=SystemClock(), faults=NoFaults()),
        engine=graph_engine(NoFaults()),
        graph_uri=lambda graph: graph_uri(root, graph),
        workers=workers_at(root),
        reports=ServingReports(lambda: open_store(root)),
    )


def served_root(source: ServedSource, found: Diagnostics) -> str | None:
    """Return the storage root of a cluster that is not in a repository. Raises the errors of `open_served`."""
    root = source.cluster
    if "://" not in root:
        if not Path(root).is_dir():
            raise GitopsError(Code.CONFIG_DIR_NOT_FOUND, f"{root} is not a folder", path="--cluster")
        storage = None
        # Only the declared location of the ledger matters. A folder without a declaration is its own root.
        declared = (Path(root) / _MANIFEST).exists()
        if not declared and not Path(root, STATE).parent.exists():
            detail = f"{root} has neither a cluster.yaml nor a ledger"
            near = sorted(each.parent.name for each in Path(root).glob(f"*/{_MANIFEST}"))
            fix = (
                f"name the folder of a cluster: gitops serve --cluster {shlex.quote(str(Path(root, near[0])))}"
                if near
                else None
            )
            raise GitopsError(Code.CLUSTER_CONFIG_READ_ERROR, detail, path="--cluster", fix=fix)
        if declared:
            header, problems = load_header(FolderTree(root, confined=True))
            found.extend(problems)
            if header is None:
                return None
            storage = header.storage
        return storage_root(storage, root)
    try:
        return storage_root(parse_storage(root).text, "/")
    except StorageRootError as error:
        raise GitopsError(Code.STORAGE_ROOT_INVALID, f"{root[:200]}: {error}", path="--cluster") from None


def _of_repository(source: ServedSource, repo: str) -> Stores:
    # Only repositories need git and its keys. A folder or a bucket is served without them.
    from gitops.repository.wiring.local import LocalRepository

    local = LocalRepository(repo, source.remote)
    workspace = local.workspace(local.rule(source.cluster), None, in_place=True)
    # The ledger records its location. The folder's declaration counts only while there is no ledger.
    header, _ = load_header(workspace.tree)
    stores = workspace.open_stores(None if header is None else header.storage)
    if source.revision is None:
        return stores
    return replace(stores, ledger=past_ledger(stores.ledger, source.revision, local.git))


def served_previews(repo: str, remote: str | None, cluster: str) -> ServedPreviews:
    """Return the previewed change requests of a repository's cluster. The repository is opened for each use."""
    from gitops.repository.served_previews import OpenedRepository, ServedPreviews
    from gitops.repository.wiring.local import LocalRepository
    from gitops.repository.wiring.previews import MachinePreviews

    def opened() -> OpenedRepository:
        local = LocalRepository(repo, remote)
        return OpenedRepository(local, local.rule(cluster), MachinePreviews(local, os.environ))

    return ServedPreviews(opened, time.sleep)


def record_signer(key: str) -> tuple[str, Callable[[bytes], str]]:
    """Return the public half of a server's key for records, as base64, and a function that signs records with it.

    `key` is the path of a private SSH key, with its public half beside it. Raises UsageError `usage_error`.
    """
    try:
        _, public = read_public_key(key)
    except GitopsError as error:
        fix = "make a key: ssh-keygen -t ed25519 -N '' -f FILE"
        raise UsageError(Code.USAGE_ERROR, f"--record-key: {error.detail}", fix=fix) from error
    return public, partial(sign, key=key, namespace=USE_NAMESPACE)


# -- Open a client of a query server, with the caller's token ----------------------------------------------------------


def open_issuer(address: str) -> WebSender:
    """Return a client for an identity provider at `https://HOST`, with one attempt, a short timeout and a size limit."""
    service = Service(
        address, Code.ISSUER_UNAVAILABLE, timeout_s=5.0, longest_s=10.0, attempts=1, max_bytes=_MOST_OF_AN_ISSUER
    )
    return WebClient(service, time.sleep, SystemClock())


def open_pages(address: str) -> WebSender:
    """Return a client for the pages of a published report, like that for an identity provider."""
    service = Service(
        address, Code.QUERY_SERVER_UNAVAILABLE, timeout_s=5.0, longest_s=10.0, attempts=1, max_bytes=_MOST_OF_PAGES
    )
    return WebClient(service, time.sleep, SystemClock())


_MOST_OF_PAGES = 8 * 1024 * 1024
_MOST_OF_AN_ISSUER = 256 * 1024
_TOKEN = "GITOPS_SERVER_TOKEN"  # noqa: S105 - the name of a variable
_MOST = 64 * 1024
_SILENCE_S, _LONGEST_S = 120.0, 600.0


def open_query_server(
    address: str, token_file: str | None, environ: Mapping[str, str], *, plain_http: bool = False
) -> WebSender:
    """Return a client for a server. Its token comes from a file or GITOPS_SERVER_TOKEN; without either, it has no token.

    Over plain HTTP, a token is sent only to this machine, or to any host with `plain_http`. Raises UsageError
    `usage_error` for an address that violates this and for an unreadable token, GitopsError `query_server_unavailable`
    for any other invalid address.
    """
    token = resolve(f"${{{_TOKEN}}}", environ) if token_file is None else read_token(token_file)
    if token is not None and (not token.reveal() or not token.reveal().isascii() or not token.reveal().isprintable()):
        raise UsageError(Code.USAGE_ERROR, f"{token.name} has no token of printable characters")
    headers = {} if token is None else {"Authorization": token.prefixed("Bearer ")}
    service = Service(
        address,
        Code.QUERY_SERVER_UNAVAILABLE,
        headers,
        timeout_s=_SILENCE_S,
        longest_s=_LONGEST_S,
        attempts=2,
        plain=plain_http or token is None,
    )
    try:
        return WebClient(service, time.sleep, SystemClock())
    except GitopsError as error:
        if token is None or not address.startswith("http://"):
            raise
        fix = "use https://HOST; or, inside a trusted network: gitops query GRAPH NAME --plain-http"
        raise UsageError(Code.USAGE_ERROR, f"{error.detail}; a token is never sent unencrypted", fix=fix) from None


def read_token(file: str) -> Secret:
    """Read the token in a file. Raises UsageError `usage_error`."""
    try:
        with Path(file).open(encoding="utf-8") as source:
            return Secret("--token-file", source.read(_MOST).strip())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        fix = "name a file that exists and contains a token: --token-file FILE"
        raise UsageError(Code.USAGE_ERROR, f"the file {file} cannot be read: {why}", fix=fix) from error
