"""Faults of requests to object storage, and objects of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from tests.support.s3 import Asked, Drop, Fault, S3Place


def conditional(asked: Asked) -> bool:
    return asked.method == "PUT" and asked.condition is not None


def nth(wanted: Callable[[Asked], bool], fault: int | Drop, *numbers: int) -> Fault:
    """A fault for the requests of a kind with these numbers, which count from 1."""
    seen: Iterator[int] = iter(range(1, 1000))
    return lambda asked: fault if wanted(asked) and next(seen) in numbers else None


def plant(s3: S3Place, key: str, data: bytes) -> None:
    """Put an object as another program would."""
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(s3.bucket, f"{s3.prefix}/{key}", data)
