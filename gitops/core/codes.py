"""Diagnostic codes: an enum, and a registry (`codes.txt`) of each code's severity, summary, cause and remedy.

Tests prove that each code is registered, raised and documented. `severity` is the default; a command can report a code
with the other severity if its situation differs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple


class Severity(StrEnum):
    """A problem's severity: an error makes the command fail, and a warning never changes the exit code."""

    ERROR = "error"
    WARNING = "warning"


class Code(StrEnum):
    """Every diagnostic code. Codes are a contract: they are never renamed or reused."""

    CONFIG_DIR_NOT_FOUND = "config_dir_not_found"
    CLUSTER_CONFIG_READ_ERROR = "cluster_config_read_error"
    DUPLICATE_YAML_KEY = "duplicate_yaml_key"
    FUTURE_PHASE_FIELD = "future_phase_field"
    INVALID_CLUSTER_YAML = "invalid_cluster_yaml"
    UNSUPPORTED_CLUSTER_CONFIG_VERSION = "unsupported_cluster_config_version"
    EMPTY_METADATA_NAME = "empty_metadata_name"
    UNSUPPORTED_STATE_BACKEND = "unsupported_state_backend"
    INVALID_STORAGE_ROOT = "invalid_storage_root"
    STORAGE_ROOT_INVALID = "storage_root_invalid"
    STORAGE_DRIVER_MISSING = "storage_driver_missing"
    STORAGE_CONDITIONAL_PUT_IGNORED = "storage_conditional_put_ignored"
    INVALID_RESOURCE_ID = "invalid_resource_id"
    SCHEMA_FILE_MISSING = "schema_file_missing"
    SCHEMA_PARSE_ERROR = "schema_parse_error"
    SCHEMA_CATALOG_ERROR = "schema_catalog_error"
    SCHEMA_ANNOTATION_UNKNOWN = "schema_annotation_unknown"
    SCHEMA_NOT_RECORDED = "schema_not_recorded"
    IRREVERSIBLE_CHANGE = "irreversible_change"
    QUERY_FILE_MISSING = "query_file_missing"
    QUERY_DIR_UNREADABLE = "query_dir_unreadable"
    QUERY_DIR_EMPTY = "query_dir_empty"
    QUERY_PARSE_ERROR = "query_parse_error"
    DUPLICATE_QUERY_NAME = "duplicate_query_name"
    NAME_DIFFERS_IN_CASE = "name_differs_in_case"
    QUERY_KEY_MISMATCH = "query_key_mismatch"
    QUERY_TYPECHECK_ERROR = "query_typecheck_error"
    QUERY_TOO_LARGE = "query_too_large"
    QUERY_TYPECHECK_SKIPPED = "query_typecheck_skipped"
    LINT_SCHEMA_UNKNOWN = "lint_schema_unknown"
    POLICY_FILE_MISSING = "policy_file_missing"
    POLICY_MISSING_APPLIES_TO = "policy_missing_applies_to"
    POLICY_PARSE = "policy_parse"
    POLICY_VERSION = "policy_version"
    POLICY_GROUP_BLANK_NAME = "policy_group_blank_name"
    POLICY_GROUP_EMPTY = "policy_group_empty"
    POLICY_GROUP_BLANK_ACTOR = "policy_group_blank_actor"
    POLICY_PROTECTED_BRANCH_BLANK = "policy_protected_branch_blank"
    POLICY_RULE_ID_BLANK = "policy_rule_id_blank"
    POLICY_RULE_ID_DUPLICATE = "policy_rule_id_duplicate"
    POLICY_RULE_GROUP_BLANK = "policy_rule_group_blank"
    POLICY_RULE_GROUP_UNKNOWN = "policy_rule_group_unknown"
    POLICY_RULE_NO_ACTIONS = "policy_rule_no_actions"
    POLICY_RULE_ACTION_DUPLICATE = "policy_rule_action_duplicate"
    POLICY_RULE_TWO_SCOPES = "policy_rule_two_scopes"
    POLICY_RULE_SCOPE_UNSUPPORTED = "policy_rule_scope_unsupported"
    POLICY_RULE_MIXED_KINDS = "policy_rule_mixed_kinds"
    POLICY_RULE_SERVER_SCOPE = "policy_rule_server_scope"
    POLICY_KIND_MISMATCH = "policy_kind_mismatch"
    POLICY_KIND_DEPRECATED = "policy_kind_deprecated"
    POLICY_MIXED_BINDING_KINDS = "policy_mixed_binding_kinds"
    DUPLICATE_POLICY_BINDING = "duplicate_policy_binding"
    GRAPH_ID_UNSERVABLE = "graph_id_unservable"
    POLICY_TESTS_INVALID = "policy_tests_invalid"
    POLICY_TEST_FAILED = "policy_test_failed"
    POLICY_INVALID = "policy_invalid"
    POLICY_EVALUATION_FAILED = "policy_evaluation_failed"
    ACCESS_WIDENED = "access_widened"
    ACCESS_UNGUARDED = "access_unguarded"
    ACCESS_BEFORE_UNKNOWN = "access_before_unknown"
    DANGLING_GRAPH_REFERENCE = "dangling_graph_reference"
    WRONG_KIND_REFERENCE = "wrong_kind_reference"
    STATE_LOCK_DISABLED = "state_lock_disabled"
    STATE_LOCK_HELD = "state_lock_held"
    STATE_LOCK_ERROR = "state_lock_error"
    STATE_LOCK_MISSING = "state_lock_missing"
    STATE_LOCK_ID_MISMATCH = "state_lock_id_mismatch"
    STATE_UNLOCK_ERROR = "state_unlock_error"
    STATE_LOCK_READ_ERROR = "state_lock_read_error"
    INVALID_STATE_LOCK = "invalid_state_lock"
    UNSUPPORTED_STATE_LOCK_VERSION = "unsupported_state_lock_version"
    STATE_MISSING = "state_missing"
    STATE_ALREADY_EXISTS = "state_already_exists"
    STATE_READ_ERROR = "state_read_error"
    INVALID_STATE_JSON = "invalid_state_json"
    UNSUPPORTED_STATE_VERSION = "unsupported_state_version"
    STATE_CAS_MISMATCH = "state_cas_mismatch"
    STATE_WRITE_ERROR = "state_write_error"
    SCHEMA_PREVIEW_UNAVAILABLE = "schema_preview_unavailable"
    PLAN_NOT_OF_FILES = "plan_not_of_files"
    APPLY_APPROVAL_INVARIANT_VIOLATION = "apply_approval_invariant_violation"
    APPLY_UNSUPPORTED_CHANGE = "apply_unsupported_change"
    APPLY_DEPENDENCY_BLOCKED = "apply_dependency_blocked"
    GRAPH_CREATE_FAILED = "graph_create_failed"
    GRAPH_CREATE_SKIPPED = "graph_create_skipped"
    SCHEMA_APPLY_FAILED = "schema_apply_failed"
    SCHEMA_APPLY_SKIPPED = "schema_apply_skipped"
    GRAPH_DELETE_FAILED = "graph_delete_failed"
    GRAPH_DELETE_SKIPPED = "graph_delete_skipped"
    APPLY_INTERRUPTED = "apply_interrupted"
    NODE_INDETERMINATE = "node_indeterminate"
    NODE_TIMEOUT = "node_timeout"
    RUN_RECORD_INVALID = "run_record_invalid"
    RESOURCE_CONTENT_CHANGED = "resource_content_changed"
    RESOURCE_PAYLOAD_WRITE_ERROR = "resource_payload_write_error"
    INJECTED_FAILPOINT = "injected_failpoint"
    RECOVERY_SIDECAR_WRITE_ERROR = "recovery_sidecar_write_error"
    RECOVERY_SIDECAR_READ_ERROR = "recovery_sidecar_read_error"
    INVALID_RECOVERY_SIDECAR = "invalid_recovery_sidecar"
    UNSUPPORTED_RECOVERY_SIDECAR_VERSION = "unsupported_recovery_sidecar_version"
    CLUSTER_RECOVERY_ROLLED_FORWARD = "cluster_recovery_rolled_forward"
    CLUSTER_RECOVERY_PENDING = "cluster_recovery_pending"
    GRAPH_CREATE_INCOMPLETE = "graph_create_incomplete"
    GRAPH_DELETE_INCOMPLETE = "graph_delete_incomplete"
    APPROVAL_NOT_REQUIRED = "approval_not_required"
    APPROVAL_STALE = "approval_stale"
    APPROVAL_WRITE_ERROR = "approval_write_error"
    APPROVAL_READ_ERROR = "approval_read_error"
    INVALID_APPROVAL_ARTIFACT = "invalid_approval_artifact"
    UNSUPPORTED_APPROVAL_VERSION = "unsupported_approval_version"
    GRAPH_OBSERVATION_ERROR = "graph_observation_error"
    CATALOG_PAYLOAD_MISSING = "catalog_payload_missing"
    CATALOG_PAYLOAD_MISMATCH = "catalog_payload_mismatch"
    CATALOG_PAYLOAD_READ_ERROR = "catalog_payload_read_error"
    CLUSTER_STATE_MISSING = "cluster_state_missing"
    CLUSTER_EMPTY = "cluster_empty"
    CATALOG_PAYLOAD_DIGEST_MISMATCH = "catalog_payload_digest_mismatch"
    CATALOG_PAYLOAD_INVALID = "catalog_payload_invalid"
    POLICY_BINDINGS_MISSING = "policy_bindings_missing"
    POLICY_BINDING_UNKNOWN = "policy_binding_unknown"
    POLICY_SCOPE_CONFLICT = "policy_scope_conflict"
    STORAGE_FAILED = "storage_failed"
    INTERNAL_ERROR = "internal_error"
    USAGE_ERROR = "usage_error"
    LSP_UNAVAILABLE = "lsp_unavailable"
    ACTOR_REQUIRED = "actor_required"
    SOURCE_MISSING = "source_missing"
    SOURCE_UNREADABLE = "source_unreadable"
    SOURCE_SYMLINK = "source_symlink"
    SOURCE_SUBMODULE = "source_submodule"
    SOURCE_NAME_UNSAFE = "source_name_unsafe"
    SOURCE_PATH_ESCAPES = "source_path_escapes"
    SOURCE_TOO_LARGE = "source_too_large"
    YAML_LIMIT_EXCEEDED = "yaml_limit_exceeded"
    YAML_ALIAS_REFUSED = "yaml_alias_refused"
    DUPLICATE_RESOURCE_ID = "duplicate_resource_id"
    MISSING_DEPENDENCY = "missing_dependency"
    DEPENDENCY_CYCLE = "dependency_cycle"
    DEPENDS_ON_DELETED = "depends_on_deleted"
    EPHEMERAL_GRAPH_ROOT = "ephemeral_graph_root"
    STORAGE_ROOT_REFUSED = "storage_root_refused"
    BOT_CONFIG_INVALID = "bot_config_invalid"
    APPROVER_KEY_MISSING = "approver_key_missing"
    CLUSTER_NOT_FOUND = "cluster_not_found"
    CLUSTER_AMBIGUOUS = "cluster_ambiguous"
    TRUST_INVALID = "trust_invalid"
    TRUST_MISSING = "trust_missing"
    TRUST_CHANGE_PENDING = "trust_change_pending"
    CLUSTER_CHANGE_PENDING = "cluster_change_pending"
    CLUSTER_GRAPHS_ELSEWHERE = "cluster_graphs_elsewhere"
    CLUSTER_RULES_DIFFER = "cluster_rules_differ"
    CLUSTER_CLOSED = "cluster_closed"
    NOT_A_REPOSITORY = "not_a_repository"
    GIT_FAILED = "git_failed"
    GIT_REF_CONFLICT = "git_ref_conflict"
    GIT_REMOTE_UNAVAILABLE = "git_remote_unavailable"
    GIT_OBJECT_MISSING = "git_object_missing"
    SHALLOW_REPOSITORY = "shallow_repository"
    PARTIAL_CLONE = "partial_clone"
    REPOSITORY_UNSUPPORTED = "repository_unsupported"
    LEDGER_NOT_FETCHED = "ledger_not_fetched"
    SOURCE_LFS_POINTER = "source_lfs_pointer"
    SIGNING_FAILED = "signing_failed"
    SIGNING_KEY_MISSING = "signing_key_missing"
    APPROVAL_UNSIGNED = "approval_unsigned"
    APPROVAL_SIGNATURE_INVALID = "approval_signature_invalid"
    APPROVAL_SIGNER_UNKNOWN = "approval_signer_unknown"
    APPROVAL_SIGNER_NOT_ALLOWED = "approval_signer_not_allowed"
    APPROVAL_SELF = "approval_self"
    APPROVAL_AUTHORS_UNKNOWN = "approval_authors_unknown"
    APPROVAL_HISTORY_TOO_LONG = "approval_history_too_long"
    APPROVAL_PLAN_CHANGED = "approval_plan_changed"
    APPROVAL_NOT_CONFIRMED = "approval_not_confirmed"
    APPROVAL_WRONG_TARGET = "approval_wrong_target"
    APPROVAL_SPENT = "approval_spent"
    APPROVAL_EXPIRED = "approval_expired"
    APPROVAL_REVOKED = "approval_revoked"
    APPROVAL_VIA_REFUSED = "approval_via_refused"
    APPROVAL_ACCOUNT_UNKNOWN = "approval_account_unknown"
    APPROVAL_NOT_FOUND = "approval_not_found"
    DECISION_MALFORMED = "decision_malformed"
    DECISION_REFUSED = "decision_refused"
    DEBT_OPEN = "debt_open"
    DEBT_NOT_FOUND = "debt_not_found"
    APPROVAL_MALFORMED = "approval_malformed"
    APPROVAL_QUORUM = "approval_quorum"
    LEDGER_CHAIN_BROKEN = "ledger_chain_broken"
    LEDGER_SIGNATURE_INVALID = "ledger_signature_invalid"
    CHANGESET_INVALID = "changeset_invalid"
    CHANGESET_STATE_INVALID = "changeset_state_invalid"
    CHANGESET_ACTIVE = "changeset_active"
    CHANGESET_OVERLAP = "changeset_overlap"
    CHANGESET_MISMATCH = "changeset_mismatch"
    TRAILER_MISMATCH = "trailer_mismatch"
    CHANGESET_CONFLICT = "changeset_conflict"
    CHANGESET_NOT_FOUND = "changeset_not_found"
    CHANGESET_NOT_ENDED = "changeset_not_ended"
    CHANGESET_ROLLED_BACK = "changeset_rolled_back"
    CHANGESET_ORPHANED = "changeset_orphaned"
    STATE_CONFLICT = "state_conflict"
    LEDGER_ENTRY_INVALID = "ledger_entry_invalid"
    LEDGER_STATE_MISMATCH = "ledger_state_mismatch"
    LEDGER_BLOB_MISMATCH = "ledger_blob_mismatch"
    LEDGER_CHANGE_UNAPPROVED = "ledger_change_unapproved"
    LEDGER_GATES_MISSING = "ledger_gates_missing"
    LEDGER_DRIFT_OPEN = "ledger_drift_open"
    LEDGER_SOURCE_MISMATCH = "ledger_source_mismatch"
    LEDGER_DIVERGED = "ledger_diverged"
    LEDGER_BEHIND = "ledger_behind"
    LEDGER_DEBT_MISMATCH = "ledger_debt_mismatch"
    WITNESS_UNPROVEN = "witness_unproven"
    ENVELOPE_INVALID = "envelope_invalid"
    PIN_INVALID = "pin_invalid"
    LEDGER_FOREIGN_DOCUMENT = "ledger_foreign_document"
    LEDGER_REPAIR_REFUSED = "ledger_repair_refused"
    LEDGER_ANCHOR_MISMATCH = "ledger_anchor_mismatch"
    LEDGER_ANCHOR_INVALID = "ledger_anchor_invalid"
    LEDGER_ADOPT_REQUIRED = "ledger_adopt_required"
    LEDGER_MISSING = "ledger_missing"
    LEDGER_NOT_WRITABLE = "ledger_not_writable"
    LEDGER_CHECKED_OUT = "ledger_checked_out"
    MERGE_NOT_CURRENT = "merge_not_current"
    DRILL_FAILED = "drill_failed"
    DRIFT_REPORTED = "drift_reported"
    DRIFT_OPEN = "drift_open"
    DRIFT_UNKNOWN = "drift_unknown"
    ISSUE_NOT_FOUND = "issue_not_found"
    REQUEST_NOT_FOUND = "request_not_found"
    REQUEST_CHECKS_FAILED = "request_checks_failed"
    REQUEST_CLOSED = "request_closed"
    REQUEST_CONFLICT = "request_conflict"
    REQUEST_FORCE_REFUSED = "request_force_refused"
    REQUEST_HEAD_MOVED = "request_head_moved"
    REQUEST_INVALID = "request_invalid"
    COMMENT_TOO_LARGE = "comment_too_large"
    FORMAT_NEEDED = "format_needed"
    PUSH_REFUSED = "push_refused"
    PROMOTION_REFUSED = "promotion_refused"
    PROMOTION_INCOMPLETE = "promotion_incomplete"
    REVERT_REFUSED = "revert_refused"
    HOOK_EXISTS = "hook_exists"
    HOOK_NOT_CURRENT = "hook_not_current"
    GRAPH_EXISTS = "graph_exists"
    GRAPH_MISSING = "graph_missing"
    GRAPH_UNREADABLE = "graph_unreadable"
    GRAPH_CONFLICT = "graph_conflict"
    LOAD_NOT_STAGED = "load_not_staged"
    LOAD_FILE_CHANGED = "load_file_changed"
    GRAPH_UNKNOWN = "graph_unknown"
    GRAPH_TYPE_UNKNOWN = "graph_type_unknown"
    GRAPH_VERSION_UNKNOWN = "graph_version_unknown"
    GRAPH_VERSION_GONE = "graph_version_gone"
    GRAPH_BRANCH_MISSING = "graph_branch_missing"
    GRAPH_BRANCH_EXISTS = "graph_branch_exists"
    GRAPH_BRANCH_NAME = "graph_branch_name"
    GRAPH_MERGE_SCHEMA = "graph_merge_schema"
    GRAPH_HAS_BRANCHES = "graph_has_branches"
    GRAPH_MIGRATION_UNSUPPORTED = "graph_migration_unsupported"
    GRAPH_ROWS_BREAK_SCHEMA = "graph_rows_break_schema"
    MIGRATION_DATA_CHANGED = "migration_data_changed"
    APPROVAL_DATA_UNKNOWN = "approval_data_unknown"
    APPROVAL_ROWS_DIFFER = "approval_rows_differ"
    APPROVAL_DATA_GREW = "approval_data_grew"
    REVOCATION_NOT_RECORDED = "revocation_not_recorded"
    APPROVAL_DATA_REPLACED = "approval_data_replaced"
    APPROVAL_OTHER_GRAPH = "approval_other_graph"
    GRAPH_REPLACED = "graph_replaced"
    GRAPH_FENCED = "graph_fenced"
    GRAPH_GROWN = "graph_grown"
    GRAPH_ROWS_REPLACED = "graph_rows_replaced"
    GRAPH_RESTORE_REFUSED = "graph_restore_refused"
    GRAPH_RESTORED = "graph_restored"
    GRAPH_VANISHED = "graph_vanished"
    GRAPH_DELETED = "graph_deleted"
    GRAPH_DATA_INVALID = "graph_data_invalid"
    KEY_CONFLICT = "key_conflict"
    MUTATION_INVALID = "mutation_invalid"
    MUTATION_MIXED = "mutation_mixed"
    QUERY_PARAMS_INVALID = "query_params_invalid"
    QUERY_UNKNOWN = "query_unknown"
    QUERY_LITERAL_INVALID = "query_literal_invalid"
    QUERY_TARGET_DIFFERS = "query_target_differs"
    QUERY_UNSUPPORTED = "query_unsupported"
    QUERY_TIMEOUT = "query_timeout"
    QUERY_MEMORY_EXCEEDED = "query_memory_exceeded"
    QUERY_FAILED = "query_failed"
    RESOURCE_LIMIT = "resource_limit"
    HEAD_MOVED = "head_moved"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    EMBEDDING_FAILED = "embedding_failed"
    EXECUTOR_FAILED = "executor_failed"
    EXECUTOR_UNAVAILABLE = "executor_unavailable"
    EXECUTOR_UNSAFE = "executor_unsafe"
    EXECUTOR_VERSION_DIFFERS = "executor_version_differs"
    INIT_FILE_DIFFERS = "init_file_differs"
    INIT_FEW_APPROVERS = "init_few_approvers"
    INIT_KEY_MISSING = "init_key_missing"
    INIT_KEY_REFUSED = "init_key_refused"
    INSTALLATION_UNUSABLE = "installation_unusable"
    PROVENANCE_UNREADABLE = "provenance_unreadable"
    FORGE_UNAVAILABLE = "forge_unavailable"
    FORGE_REFUSED = "forge_refused"
    FORGE_LIMIT = "forge_limit"
    EVENT_INVALID = "event_invalid"
    TEMPLATE_INVALID = "template_invalid"
    COMMAND_INVALID = "command_invalid"
    COMMAND_REFUSED = "command_refused"
    PUSHERS_PENDING = "pushers_pending"
    FORGE_VERDICT_MISSING = "forge_verdict_missing"
    QUEUE_PLAN_DIFFERS = "queue_plan_differs"
    SERVE_UNAVAILABLE = "serve_unavailable"
    WEBHOOK_SECRET_MISSING = "webhook_secret_missing"
    LISTEN_FAILED = "listen_failed"
    API_TOKENS_INVALID = "api_tokens_invalid"
    API_TOKEN_REFUSED = "api_token_refused"
    API_WRITE_REFUSED = "api_write_refused"
    OIDC_RULES_INVALID = "oidc_rules_invalid"
    OIDC_TOKEN_REFUSED = "oidc_token_refused"
    ISSUER_UNAVAILABLE = "issuer_unavailable"
    API_REQUEST_INVALID = "api_request_invalid"
    API_ADDRESS_UNKNOWN = "api_address_unknown"
    QUEUE_IN_USE = "queue_in_use"
    QUEUE_UNUSABLE = "queue_unusable"
    QUEUE_FULL = "queue_full"
    QUEUE_EVENT_INVALID = "queue_event_invalid"
    QUEUE_EVENT_MISSING = "queue_event_missing"
    ATTACK_IMPOSSIBLE = "attack_impossible"
    EXCLUSIVE_BOOT_SOURCE = "exclusive_boot_source"
    CLUSTER_NO_HEALTHY_GRAPHS = "cluster_no_healthy_graphs"
    POLICY_BINDING_UNRECOGNIZED = "policy_binding_unrecognized"
    STORED_QUERY_INVALID = "stored_query_invalid"
    STORED_QUERY_CHECK_FAILED = "stored_query_check_failed"
    GRAPH_REWOUND = "graph_rewound"
    SCHEMA_DRIFT = "schema_drift"
    REVISION_REWOUND = "revision_rewound"
    REPLICA_READ_ONLY = "replica_read_only"
    REPLICA_TOO_STALE = "replica_too_stale"
    REPLICA_CACHE_FULL = "replica_cache_full"
    SERVING_REPORT_INVALID = "serving_report_invalid"
    SERVING_REPORTS_UNREADABLE = "serving_reports_unreadable"
    SERVING_REFUSED = "serving_refused"
    SERVING_NOT_REACHED = "serving_not_reached"
    SERVING_UNREPORTED = "serving_unreported"
    TOKEN_SOURCE_INVALID = "token_source_invalid"
    AUTH_NOT_CONFIGURED = "auth_not_configured"
    OPEN_SERVER_EXPOSED = "open_server_exposed"
    POLICY_WITHOUT_TOKENS = "policy_without_tokens"
    REVISION_UNKNOWN = "revision_unknown"
    QUERY_SERVER_UNAVAILABLE = "query_server_unavailable"
    QUERY_SERVER_BUSY = "query_server_busy"
    QUERY_SERVER_UNAUTHORIZED = "query_server_unauthorized"
    QUERY_SERVER_FORBIDDEN = "query_server_forbidden"
    QUERY_SERVER_UNKNOWN = "query_server_unknown"
    QUERY_SERVER_REFUSED = "query_server_refused"
    COMPUTE_TARGET_UNDECLARED = "compute_target_undeclared"
    PROJECTION_PENDING = "projection_pending"
    REPLICA_LIMIT_EXCEEDED = "replica_limit_exceeded"
    ALREADY_RUNNING = "already_running"
    AUDIT_FAILED = "audit_failed"
    COMPUTE_CLUSTER_CLAIMED = "compute_cluster_claimed"
    COMPUTE_CLUSTER_MANAGED = "compute_cluster_managed"
    COMPUTE_CLUSTER_MISSING = "compute_cluster_missing"
    DECISION_OUTDATED = "decision_outdated"
    REPLICA_CONFLICT = "replica_conflict"
    REPLICA_FAILED = "replica_failed"
    REPLICA_SIZE_INVALID = "replica_size_invalid"
    REPLICA_UNCOVERED = "replica_uncovered"
    SINGLE_REPLICA_ONLY = "single_replica_only"
    TARGET_UNNAMED = "target_unnamed"
    TARGET_URL_MISSING = "target_url_missing"
    TICK_SKIPPED = "tick_skipped"
    SCENARIO_INVALID = "scenario_invalid"
    STRATEGY_INVALID = "strategy_invalid"
    STRATEGY_QUESTIONABLE = "strategy_questionable"
    MATERIALIZE_UNAVAILABLE = "materialize_unavailable"
    TARGET_URL_INVALID = "target_url_invalid"
    TARGET_UNREACHABLE = "target_unreachable"
    TARGET_DENIED = "target_denied"
    TARGET_FAILED = "target_failed"
    SIGNAL_UNAVAILABLE = "signal_unavailable"
    STRATEGY_RECORD_INVALID = "strategy_record_invalid"
    UNMANAGED_STRATEGY = "unmanaged_strategy"


class CodeEntry(NamedTuple):
    """A registered code: a short fixed summary without names, its usual cause, and its remedy.

    `fix` is None if correcting the reported place is enough.
    """

    code: Code
    severity: Severity
    summary: str
    cause: str
    fix: str | None


ENTRY = re.compile(r"^(\w+) \| ([EW]) \| (.+)\n  (\S.+)(?:\n  -> (.+(?:\n     .+)*))?", re.MULTILINE)
"""An entry in the table: code, E or W, summary, cause, and possibly a remedy, which can continue on further lines."""


def table() -> str:
    """Return the text of `codes.txt`, a resource of the package."""
    # Most runs report no problems, so they never read this file.
    from pkgutil import get_data

    return (get_data("gitops.core", "codes.txt") or b"").decode()


class _Registry(Mapping[Code, CodeEntry]):
    """The entries in `codes.txt`, read when the first problem is reported."""

    @cached_property
    def _entries(self) -> dict[Code, CodeEntry]:
        severities = {"E": Severity.ERROR, "W": Severity.WARNING}
        entries = (
            CodeEntry(Code(name), severities[level], summary, cause, " ".join(fix.split()) or None)
            for name, level, summary, cause, fix in ENTRY.findall(table())
        )
        return {entry.code: entry for entry in entries}

    def __getitem__(self, code: Code) -> CodeEntry:
        return self._entries[code]

    def __iter__(self) -> Iterator[Code]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


REGISTRY: Mapping[Code, CodeEntry] = _Registry()

# Accept only a string that a shell reads as one plain word, because an address in a diagnostic can come from a change
# request.
_ADDRESS = re.compile(
    r"(?:graph|schema|query|policy|restore|strategy|trust|cluster)\.([A-Za-z0-9_][A-Za-z0-9_-]*)(?:\.[A-Za-z0-9_-]+)?\Z"
)

_CHANGESET = re.compile(r"chs-[a-z2-7]{16}\Z")
_APPROVAL = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")


def remedy(code: Code, path: str) -> str | None:
    """Return a code's registered remedy, with `path` inserted into its commands.

    `path` is used if it is an address, a changeset key, an approval id or a commit id, or a file of the cluster folder
    that is refused. Returns None if the code has no remedy. Raises KeyError for a code that is not registered.
    """
    fix = REGISTRY[code].fix
    if fix is None:
        return None
    if _CHANGESET.match(path):
        return re.sub(r"\bKEY\b", path, fix)
    if _APPROVAL.match(path):
        return re.sub(r"\bAPPROVAL_ID\b", path, fix)
    if _COMMIT.match(path):
        return re.sub(r"\bOID\b", path, fix)
    if path and code.startswith("source_"):
        return re.sub(r"\bFILE\b", lambda _: shlex.quote(path), fix)
    at = _ADDRESS.match(path)
    if at is None:
        return fix
    return re.sub(r"\b(?:ADDRESS|trust\.NAME|cluster\.NAME)(?!\w)", path, re.sub(r"\bGRAPH\b", at[1], fix))
