"""Readers of argument values. Each raises ValueError or argparse.ArgumentTypeError for a value that it does not take."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MAX_PORT = 65_535


def count(text: str) -> int:
    """A whole number, at least 1."""
    value = int(text)
    if value < 1:
        raise ArgumentTypeError("use a number of at least 1")
    return value


def up_to(maximum: int) -> Callable[[str], int]:
    """The reader of a whole number from 1 to `maximum`."""

    def read(text: str) -> int:
        value = int(text)
        if not 1 <= value <= maximum:
            raise ArgumentTypeError(f"use 1 to {maximum}")
        return value

    read.__name__ = "int"  # argparse names it in its message
    return read


def seconds(text: str) -> float:
    """A finite number of seconds above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ArgumentTypeError("use a number of seconds above 0")
    return value


def duration(text: str) -> timedelta:
    """A duration such as 90s, 10m, 6h or 7d."""
    from datetime import timedelta

    match = re.match(r"([1-9][0-9]{0,4})([smhd])\Z", text)
    if match is None:
        raise ArgumentTypeError("use a number with s, m, h or d, such as 10m")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def host_and_port(text: str) -> tuple[str, int]:
    """A host name or an IP address with a port; an IPv6 address stands in brackets."""
    match = re.match(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z.-]+)):([0-9]{1,5})\Z", text, re.ASCII)
    if match is None or int(match[3]) > _MAX_PORT:
        raise ArgumentTypeError("use HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    return match[1] or match[2], int(match[3])
