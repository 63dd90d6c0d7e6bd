"""Tests whether a service decides between racing writers, by sending the same conditional PUT several times at once.

A service that ignores conditions accepts all writers; one that checks first and writes later accepts several
occasionally. So one race detects the first kind, and many races detect the second kind with growing probability.
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
    """Numbers of `writers` that created one object and that replaced one content; exactly one of each is correct.

    After a creation with several winners there is no replacement.
    """

    writers: int
    created: int
    replaced: int

    @property
    def fault(self) -> str:
        """Describe the service's wrong behaviour; empty if it decided correctly."""
        if self.created > 1:
            return f"create the same object (If-None-Match: *): {self.created} of {self.writers} got the answer that they did"
        if self.replaced > 1:
            return (
                f"replace the same content (If-Match): {self.replaced} of {self.writers} got the answer that they did"
            )
        return ""


class RacingStore(ObjectStore, Protocol):
    """A store over a service that has to decide between writers."""

    def race(self, writers: int, rounds: int) -> list[Race]:
        """Test how the service decides, this many times, with objects that are removed again.

        Raises RemoteError `storage_failed`.
        """
        ...


def race(bucket: Bucket, path: str, writers: int, used: list[str]) -> Race:
    """Have this many writers create an object, and then replace it.

    A race without a certain winner is repeated at a new object. The objects begin with `path` and are added to `used`,
    for the caller to remove. Raises RemoteError `storage_failed`.
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
        # Where several created it, the tag of one of them may be gone already.
        if len(created) > 1 or replaced:
            return Race(writers, len(created), replaced)
        for each in answers:
            if each.failure is not None:
                reason, fix = each.failure.detail, each.failure.fix
    detail = f"the service of s3://{bucket.name} cannot be tested: {reason}"
    raise RemoteError(Code.STORAGE_FAILED, detail, path=place, retryable=True, fix=fix)


def _start(bucket: Bucket, path: str, matching: str | None, writers: int) -> list[PutAnswer]:
    """Run writes of one object that start together, and return their results."""
    gate = Barrier(writers)

    def write(number: int) -> PutAnswer:
        gate.wait()
        # No content is written twice: tags are often digests, and then the old tag would be right again.
        content = f"writer {number} of {matching}\n".encode()
        return bucket.put_if(path, content, f"probe-{number}", matching=matching)

    return in_parallel(write, range(writers), writers)
