"""Bearer tokens: where they come from, and whose a presented one is.

1. A token is known by its SHA-256 alone; its text is dropped when it was read.
2. A presented token is compared with every known one, each in constant time, so that every answer takes equally long.
3. Actors come from here and from nowhere else: no header, parameter or body of a request says who asks.

The sources, as variables of the environment; a blank one is not set:

OMNIGRAPH_SERVER_BEARER_TOKENS_FILE   path of a JSON object `{"ACTOR": "TOKEN"}`; or of a folder with one file for each token,
                                      named by its actor, as secrets are mounted; names that begin with a dot are left out
OMNIGRAPH_SERVER_BEARER_TOKENS_JSON   such an object itself; not read beside a file
OMNIGRAPH_SERVER_BEARER_TOKEN         one token, of the actor `default`, besides the others
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, system_reason

__all__ = ["AWS_SECRET", "FILE", "JSON", "SINGLE", "BearerTokens", "load_tokens"]

FILE = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
JSON = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
SINGLE = "OMNIGRAPH_SERVER_BEARER_TOKEN"
AWS_SECRET = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"  # noqa: S105 - the name of a variable
_DEFAULT_ACTOR = "default"
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BearerTokens:
    """The known tokens: the SHA-256 of each, and its actor. Actors and tokens are distinct."""

    known: tuple[tuple[bytes, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.known)

    @property
    def actors(self) -> tuple[str, ...]:
        """Every actor with a token, in order."""
        return tuple(sorted(actor for _, actor in self.known))

    def actor_of(self, presented: bytes) -> str | None:
        """Whose token this is, None for an unknown one."""
        digest, found = hashlib.sha256(presented).digest(), None
        for known, actor in self.known:
            if hmac.compare_digest(known, digest):
                found = actor
        return found


def load_tokens(environ: Mapping[str, str], found: Diagnostics) -> BearerTokens:
    """Read the tokens of all sources; what is wrong with them is added to `found`, and never shows a token."""
    given = {name: environ.get(name, "").strip() for name in (AWS_SECRET, FILE, JSON, SINGLE)}
    pairs: list[tuple[str, str]] = []
    try:
        if given[AWS_SECRET]:
            detail = f"this build reads no secrets of AWS; mount the secret as a file, and name it in {FILE}"
            raise _refused(AWS_SECRET, detail)
        if given[FILE]:
            pairs += _named(Path(given[FILE]))
        elif given[JSON]:
            pairs += _object(given[JSON].encode("utf-8", "surrogatepass"), JSON)
        if given[SINGLE]:
            pairs.append((_DEFAULT_ACTOR, given[SINGLE]))
        return _table(pairs)
    except GitopsError as error:
        found.add_error(error)
        return BearerTokens()


def _table(pairs: Iterable[tuple[str, str]]) -> BearerTokens:
    known: dict[str, bytes] = {}
    owners: dict[bytes, str] = {}
    for given, text in pairs:
        actor, token = given.strip(), text.strip()
        if not actor:
            raise _refused("bearer tokens", "the name of an actor is blank")
        if not token:
            raise _refused("bearer tokens", f"the token of actor '{actor}' is blank")
        if actor in known:
            raise _refused("bearer tokens", f"actor '{actor}' has two tokens")
        try:
            digest = hashlib.sha256(token.encode()).digest()
        except UnicodeEncodeError:
            raise _refused("bearer tokens", f"the token of actor '{actor}' is not Unicode text") from None
        if digest in owners:
            raise _refused("bearer tokens", f"actors '{owners[digest]}' and '{actor}' have the same token")
        known[actor], owners[digest] = digest, actor
    return BearerTokens(tuple((digest, actor) for actor, digest in sorted(known.items())))


def _named(place: Path) -> list[tuple[str, str]]:
    """The tokens of a file, or of a folder of files."""
    try:
        if not place.is_dir():
            return _object(_bytes(place), str(place))
        files = sorted(each for each in place.iterdir() if not each.name.startswith(".") and each.is_file())
        return [(each.name, _bytes(each).decode()) for each in files]
    except OSError as error:
        raise _refused(FILE, system_reason(error, place)) from error
    except UnicodeDecodeError as error:
        raise _refused(FILE, f"{place}: a token is not UTF-8 text") from error


def _bytes(file: Path) -> bytes:
    with file.open("rb") as source:
        data = source.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise _refused(FILE, f"{file} has more than {_MAX_BYTES} bytes")
    return data


def _object(data: bytes, place: str) -> list[tuple[str, str]]:
    def members(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        return pairs

    try:
        # A list of pairs keeps a member that is there twice, and an array looks like it, but for its first character.
        read = json.loads(data.decode(), object_pairs_hook=members)
    except (ValueError, RecursionError) as error:
        raise _refused(place, "it is not a JSON object of texts") from error
    opens = data.lstrip()[:1] == b"{"
    if not opens or any(not isinstance(token, str) for _, token in read):
        raise _refused(place, "it is not a JSON object of texts")
    return list(read)


def _refused(place: str, detail: str) -> GitopsError:
    return GitopsError(Code.TOKEN_SOURCE_INVALID, detail, path=place)
