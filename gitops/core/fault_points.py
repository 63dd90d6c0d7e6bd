"""The names of all fault points, each with the moment that it stands for.

A name says where and when: `area.before_step` is reached when nothing of the step is durable yet, `area.after_step` when all
of it is. Names that begin with `cluster_` belong to a verb, `ledger.` to a ledger store, `engine.` to the graph engine, `server.`
to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["FAULT_POINTS"]

FAULT_POINTS: Mapping[str, str] = MappingProxyType(
    {
        # Verbs.
        "cluster_apply.before_graph_create": "the intent of a create is durable, the graph is not begun",
        "cluster_apply.after_graph_create": "a new graph has its root, its intent is armed",
        "cluster_apply.before_schema_apply": "the intent of a migration is durable, the graph is as before",
        "cluster_apply.after_schema_apply": "a migrated graph has its new version, its intent is armed",
        "cluster_apply.before_graph_delete": "the intent of a delete is durable, the graph is whole",
        "cluster_apply.after_graph_delete": "a deleted graph is gone, its intent is armed",
        "cluster_apply.after_payload_phase": "all nodes have run, the state is as before",
        "cluster_apply.before_state_write": "the next state is settled in memory, the ledger is as before",
        "cluster_refresh.before_state_write": "everything is observed, the ledger is as before",
        "cluster_import.before_state_write": "everything is observed, there is no ledger yet",
        "cluster_approve.before_push": "an approval is signed in the local objects, nobody can see it",
        "cluster_approve.after_push": "an approval is where the bot looks for it",
        "cluster_decide.before_push": "a revocation or countersignature is signed in the local objects, nobody can see it",
        "cluster_decide.after_push": "a revocation or countersignature is where every run looks for it",
        # Ledger stores.
        "ledger.lock.before_take": "the lock is free",
        "ledger.lock.after_take": "the lock is ours, nothing else has happened",
        "ledger.lock.before_give_back": "the work is done, the lock is still ours",
        "ledger.lock.after_give_back": "the lock is free again",
        "ledger.lock.before_break": "the lock of a dead process was found",
        "ledger.lock.after_break": "the lock of a dead process is gone",
        "ledger.sidecar.before_arm": "an operation on a graph is due, nothing of it is durable",
        "ledger.sidecar.after_arm": "the intent of the operation is durable",
        "ledger.sidecar.before_amend": "the operation is done, its intent does not name the new version yet",
        "ledger.sidecar.after_amend": "the intent names the new version",
        "ledger.sidecar.before_remove": "an intent is settled and still there",
        "ledger.sidecar.after_remove": "a settled intent is gone",
        "ledger.blob.before_write": "the text of a query or policy is not in the catalog yet",
        "ledger.blob.after_write": "the text of a query or policy is in the catalog, the state does not name it yet",
        "ledger.approval.before_record": "an approval was granted, nothing of it is durable",
        "ledger.approval.after_record": "the approval is durable",
        "ledger.approval.before_mark": "the state says that an approval is spent, its document does not",
        "ledger.approval.after_mark": "the document of a spent approval says so too",
        "ledger.commit.before_state": "the next state of a ledger folder is ready, the old one is in force",
        "ledger.commit.after_state": "the next state is in force, nothing is tidied up",
        "ledger.commit.after_retire": "settled intents are gone, spent approvals are not marked",
        "ledger.branch.before_sign": "an entry of a ledger branch is ready, no object of it is written",
        "ledger.branch.after_sign": "the entry is a signed commit that no ref names",
        "ledger.branch.before_push": "the entry is verified, the branch is as before",
        "ledger.branch.after_push": "the branch has the entry, this clone has not noted it",
        "ledger.branch.before_note": "a verified head is not noted as seen yet",
        "ledger.branch.after_note": "a verified head is noted as seen",
        "ledger.branch.before_follow": "the branch of this clone is behind the remote's",
        "ledger.branch.after_follow": "the branch of this clone is where the remote's is",
        # The queue of a server.
        "server.queue.before_accept": "a delivery is believed and read, nothing of it is durable",
        "server.queue.after_accept": "the event is in the queue, the forge has no answer yet",
        "server.worker.before_handle": "an event is marked as being worked on, nothing of it is done",
        "server.worker.after_handle": "an event is handled, the queue says that it is being worked on",
        # Graph engine.
        "engine.create.before_tables": "a new graph has its staging place and its schema, but no table",
        "engine.create.staged": "a new graph is whole in its staging place, no root exists",
        "engine.create.before_publish": "the same, and the root is about to be taken",
        "engine.create.after_publish": "the new graph has its root",
        "engine.migrate.after_tables": "the tables are changed, the schema text is not stored",
        "engine.migrate.staged": "the tables are changed, no manifest names their new versions",
        "engine.migrate.before_publish": "the same, and the manifest is about to be written",
        "engine.migrate.after_publish": "the manifest of the migrated version exists",
        "engine.delete.before_remove": "a graph is about to be removed",
        "engine.delete.after_remove": "nothing is left at the root or beside it",
        "engine.load.before_tables": "records are checked and lie in data files, no table has a new version",
        "engine.branch.create.before_manifest": "a branch is wanted, nothing of it is durable",
        "engine.branch.create.after_manifest": "the first version of a branch lies on a line without a name",
        "engine.branch.create.before_index": "the same, and the name is about to be given",
        "engine.branch.create.after_index": "the branch exists",
        "engine.branch.delete.before_index": "a branch is about to lose its name",
        "engine.branch.delete.after_index": "the branch is gone, its versions still lie there",
        "engine.merge.staged": "the rows of a merge are written to their tables, no manifest names them",
        "engine.merge.before_publish": "the same, and the manifest is about to be written",
        "engine.merge.after_publish": "the manifest of the merge exists",
        "engine.gc.before_floors": "versions to give up are chosen, nothing is changed",
        "engine.gc.after_floors": "the numbers to give up are noted, all manifests are there",
        "engine.gc.before_manifest": "some manifests that are given up are gone, the others are there",
        "engine.gc.after_manifest": "all manifests that are given up are gone, their tables are there",
        "engine.gc.before_versions": "versions of a table that nothing refers to are about to go",
        "engine.gc.after_versions": "these versions of this table are gone",
        "engine.gc.after_folder": "the folder of a table that nothing refers to is gone",
        "engine.gc.after_sweep": "small files that nothing refers to are gone",
        "engine.optimize.staged": "a table is compacted and indexed, no manifest names this",
        "engine.optimize.before_publish": "the same, and the manifest is about to be written",
        "engine.optimize.after_publish": "the manifest with the optimized table exists",
        "engine.load.staged": "rows are written to their tables, no manifest names them",
        "engine.load.before_publish": "the same, and the manifest is about to be written",
        "engine.load.after_publish": "the manifest with the rows exists",
        "engine.mutate.before_tables": "a mutation is evaluated and checked, no table is changed",
        "engine.mutate.staged": "the tables of a mutation are changed, no manifest names their new versions",
        "engine.mutate.before_publish": "the same, and the manifest is about to be written",
        "engine.mutate.after_publish": "the manifest of the mutation exists",
    }
)
