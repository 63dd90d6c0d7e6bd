"""Sends concurrent conditional PUTs to test that a service lets only one of several racing writers win.

A service that ignores conditions accepts all writers. A service with a gap between check and write occasionally accepts
several. So a single race detects the first kind, and the more races are run, the more likely they are to detect the
second kind.
"""

from __future__ import annotations

from threading import Barrier
from typing import Protocol

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError
from gitops.database.storage.bucket import Bucket, PutAnswer, PutResult
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class Race:
    """The result of a race: how many of the `writers` created an object, and how many replaced it. Both must be one.

    If several writers created the object, replacement is not tested.
    """

    writers: int
    created: int
    replaced: int

    @property
    def fault(self) -> str:
        """Describe what the service does wrong. Empty if there is no fault."""
        if self.created > 1:
            return f"create the same object (If-None-Match: *): {self.created} of {self.writers} got the answer that they did"
        if self.replaced > 1:
            return (
                f"replace the same content (If-Match): {self.replaced} of {self.writers} got the answer that they did"
            )
        return ""


class RacingStore(ObjectStore, Protocol):
    """A store on a service that must let only one of several racing writers win."""

    def race(self, writers: int, rounds: int) -> list[Race]:
        """Run this many races with temporary objects.

        Raises RemoteError `storage_failed`.
        """
        ...


def race(bucket: Bucket, path: str, writers: int, used: list[str]) -> Race:
    """Let several writers race to create an object, and then to replace it.

    A race without a definite winner is repeated with a new object. Object keys start with `path` and are added to
    `used`; the caller must remove them. Raises RemoteError `storage_failed`.
    """
    place = f"s3://{bucket.name}/{path}"
    reason, fix = f"it rejected all {writers} writers", None
    for attempt in bucket.retry.attempts(place):
        used.append(f"{path}-{attempt}")
        answers = _start(bucket, used[-1], None, writers)
        created = [each.tag for each in answers if each.result is PutResult.WRITTEN]
        replaced = 0
        if len(created) == 1 and created[0]:
            answers = _start(bucket, used[-1], created[0], writers)
            replaced = sum(each.result is PutResult.WRITTEN for each in answers)
        # If several writers created the object, some of their tags may already be outdated.
        if len(created) > 1 or replaced:
            return Race(writers, len(created), replaced)
        for each in answers:
            if each.failure is not None:
                reason, fix = each.failure.detail, each.failure.fix
    detail = f"the service of s3://{bucket.name} cannot be tested: {reason}"
    raise RemoteError(Code.STORAGE_FAILED, detail, path=place, retryable=True, fix=fix)


def _start(bucket: Bucket, path: str, matching: str | None, writers: int) -> list[PutAnswer]:
    """Start several writes of one object at the same time; return their results."""
    gate = Barrier(writers)

    def write(number: int) -> PutAnswer:
        gate.wait()
        # Never write the same content twice. Tags are often digests, so the old tag would match again.
        content = f"writer {number} of {matching}\n".encode()
        return bucket.put_if(path, content, f"probe-{number}", matching=matching)

    return in_parallel(write, range(writers), writers)
