"""What the commands of `gitops graph` share: the graph, the version, the input and the embedder that options name."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gitops.cli.shared import actor_of
from gitops.config.cluster_yaml import load_header
from gitops.config.folder import FolderTree
from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.core.redact import resolve
from gitops.graph import ReadTarget
from gitops.model.address import is_name
from gitops.wiring.stores import graph_uri, storage_root
from gitops.wiring.system import RandomIds, SystemClock

if TYPE_CHECKING:
    from gitops.graph import Embedder, WriteContext

_PLACE = re.compile(r"(?:(?P<branch>[^@]+)@)?(?P<when>.+)")
_KEY_REFERENCE = "${GITOPS_EMBEDDINGS_KEY}"


def write_context(options: argparse.Namespace) -> WriteContext:
    """The clock, the ids and the actor of a verb that writes."""
    from gitops.graph import WriteContext

    return WriteContext(SystemClock(), RandomIds(), actor_of(options))


def graph_root(options: argparse.Namespace) -> str:
    """The root of the graph that the options name."""
    if options.root is not None:
        return str(options.root)
    if not is_name(options.graph):
        raise GitopsError(Code.INVALID_RESOURCE_ID, f"{options.graph!r} is not a graph id", path="graph")
    header, problems = load_header(FolderTree(options.config, confined=False))
    if header is None:
        first = next(iter(problems))
        raise GitopsError(first.code, first.message, path=first.path)
    return graph_uri(storage_root(header.storage, options.config), options.graph)


def read_target(options: argparse.Namespace) -> ReadTarget:
    """The version that `--branch` and `--at` name."""
    return _read_target(options.branch, options.at)


def parse_revision(text: str) -> ReadTarget:
    """The version that `BRANCH`, `WHEN` or `BRANCH@WHEN` names; WHEN is a version, a commit or a time."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise UsageError(Code.USAGE_ERROR, f"{text[:80]!r} is not a version: use BRANCH, BRANCH@VERSION or a commit id")
    branch, when = match["branch"], match["when"]
    if branch is None and not (when.isdecimal() or is_ulid(when) or parse_timestamp(when)):
        return ReadTarget(when)
    return _read_target(branch or "main", when)


def _read_target(branch: str, when: str | None) -> ReadTarget:
    if when is None:
        return ReadTarget(branch)
    if when.isascii() and when.isdecimal():
        return ReadTarget(branch, version=int(when[:20]))
    if is_ulid(when):
        return ReadTarget(branch, commit=when)
    return ReadTarget(branch, time=when)


def open_records(name: str) -> BinaryIO:
    """A file, or standard input for `-`."""
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise GitopsError(Code.USAGE_ERROR, f"cannot read {name}: {error.strerror}", path=name) from error
    except ValueError:
        raise UsageError(Code.USAGE_ERROR, f"{name!r} is not a file name") from None


def find_embedder(options: argparse.Namespace) -> Embedder | None:
    """What makes vectors of texts: `hash`, or `MODEL@https://HOST/v1` with the key in GITOPS_EMBEDDINGS_KEY; None if not set.

    Raises GitopsError `embedding_failed` for an invalid address.
    """
    spec = options.embeddings or os.environ.get("GITOPS_EMBEDDINGS", "")
    if not spec:
        return None
    if spec == "hash":
        from gitops.graph import HashEmbedder

        return HashEmbedder()
    model, at, base = spec.partition("@")
    if not at or not model:
        raise UsageError(Code.USAGE_ERROR, f"--embeddings {spec[:80]!r}: use hash, or MODEL@https://HOST/v1")
    from gitops.forge.client import Service, WebClient
    from gitops.graph import ServiceEmbedder

    key = resolve(_KEY_REFERENCE, os.environ)
    headers = {} if key is None else {"Authorization": key.prefixed("Bearer ")}
    return ServiceEmbedder(
        WebClient(Service(base, Code.EMBEDDING_FAILED, headers), time.sleep, SystemClock()).post, model
    )
