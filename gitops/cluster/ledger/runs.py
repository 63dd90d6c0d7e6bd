"""The document of a run: `changesets/<key>.run.json`, beside the record of its changeset."""

from __future__ import annotations

from gitops.cluster.changesets.runs import longest
from gitops.cluster.model.plan import NodeOutcome
from gitops.cluster.model.run_record import RunNode, RunRecord
from gitops.core.codes import Code
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import LINE, enum, integer, list_of, nullable, record

MAX_BYTES = 256 * 1024
_LONGEST = 200

_NODE = record(
    RunNode,
    {
        "id": LINE,
        "ready": nullable(integer()),
        "started": nullable(integer()),
        "finished": integer(),
        "worker": nullable(integer()),
        "after": nullable(LINE),
        "waited_for": list_of(LINE),
        "outcome": enum(NodeOutcome),
    },
)
RUN = Document(
    versions={1: record(RunRecord, {"workers": integer(1), "nodes": list_of(_NODE)})}, code=Code.RUN_RECORD_INVALID
)


def write_run(run: RunRecord) -> bytes:
    """The document; where it would be longer than 256 KiB, with the 200 nodes that took longest."""
    # A node takes 100 bytes at least: a much longer run need not be written to see that.
    data = b"" if len(run.nodes) * 100 > MAX_BYTES else RUN.write(run)
    return data if data and len(data) <= MAX_BYTES else RUN.write(longest(run, _LONGEST))


def read_run(data: bytes) -> RunRecord:
    """The run of a document. Raises IntegrityError `run_record_invalid`."""
    return RUN.read(data)
