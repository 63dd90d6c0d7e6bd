"""What is sent to a host and how its answer is read: one constant command line, a script with its input, and sections.

The command line of every session is a constant. The script, its arguments and contents follow on standard input with their
lengths, because other users of a host can see command lines, and because these are limited in size.

    60                      the seconds after which the host ends the script
    1234                    the number of bytes of the script
    …                       the script, then its input

The script prints sections. A section begins with a line that has a random nonce, so nothing that a host says about its
files can begin one. An answer whose last section isn't `end` is incomplete, whatever the exit status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")
_READ_SCRIPT = 'read -r size && eval "$(head -c "$size")"'
_PRELUDE = r"""
set -u
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 077
section() { printf '\n%s %s\n' "$nonce" "$1"; }
section begin
"""


def quoted(word: str) -> str:
    """Return a word as every POSIX shell reads it back. Raises ValueError for NUL, which no argument can contain."""
    if "\0" in word:
        raise ValueError("an argument cannot contain NUL")
    if word and _SAFE.issuperset(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def command_line(words: Iterable[str]) -> str:
    """Return an argument vector as a line for a shell. Every line that is sent to a host is built here."""
    return " ".join(map(quoted, words))


_READ_TIMEOUT = f'read -r seconds && exec timeout -k 10 "$seconds" /bin/sh -c {quoted(_READ_SCRIPT)}'


def session_argv(become: str | None) -> tuple[str, ...]:
    """Return the constant argument vector of a session, whose shell reads a script from standard input.

    `become` is the user that runs it, None for the user who connects.
    """
    shell = ("/bin/sh", "-c", _READ_TIMEOUT)
    return shell if become is None else ("sudo", "-n", "-u", become, "--", *shell)


@dataclass(frozen=True, slots=True)
class Script:
    """A script for a host, with its variables and the bytes that it reads from standard input.

    `text` is a constant of this program. `variables` are set before it runs, as text or as whole numbers. The script reads
    each of `inputs` with `head -c`, by a length that is one of the variables.
    """

    text: str
    variables: Mapping[str, str | int] = field(default_factory=lambda: MappingProxyType({}))
    inputs: Sequence[bytes] = ()
    timeout_s: int = 60

    def stdin(self, nonce: str) -> bytes:
        """Return the standard input of a session. `nonce` marks the sections of the answer."""
        variables = {**self.variables, "nonce": nonce}
        head = "".join(f"{name}={quoted(str(value))}\n" for name, value in variables.items())
        script = (head + _PRELUDE + self.text).encode()
        return b"%d\n%d\n%s%s" % (self.timeout_s, len(script), script, b"".join(self.inputs))


def table(words: Iterable[str]) -> bytes:
    """Return words as a script reads them with `xargs -0`: each ends with NUL."""
    return b"".join(each.encode() + b"\0" for each in words)


def read_sections(answer: bytes, nonce: str, host: str) -> Mapping[str, bytes]:
    """Return the sections of an answer by name, without the first, `begin`, and the last, `end`.

    Raises RemoteError `host_connection_lost` for an answer that isn't complete.
    """
    mark = f"\n{nonce} ".encode()
    _, *parts = answer.split(mark)
    sections = {}
    for part in parts:
        name, _, content = part.partition(b"\n")
        sections[name.decode("ascii", "replace")] = content
    if not parts or parts[-1] != b"end\n" or parts[0] != b"begin\n":
        raise connection_lost(host)
    del sections["begin"], sections["end"]
    return sections


def has_begun(answer: bytes, nonce: str) -> bool:
    """Return True if the script of this answer has started."""
    return f"\n{nonce} begin\n".encode() in answer


def connection_lost(host: str) -> RemoteError:
    """The error for an answer that isn't complete."""
    detail = "the connection ended before the answer was complete"
    return RemoteError(Code.HOST_CONNECTION_LOST, detail, path=f"host.{host}", retryable=True)
