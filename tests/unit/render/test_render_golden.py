"""What every verb prints, as files: a change of output is a change of a file that a reviewer sees."""

from __future__ import annotations

import json

import pytest
from render_cases import DATA, VERBS, files

from gitops.cluster.model.outcome import VerbOutcome
from gitops.core.diagnostics import Severity
from gitops.render import json as render_json
from gitops.render import text as render_text

FILES = files()

FIELDS = {
    "validate": "ok config_dir config_file resource_digests resources dependencies diagnostics",
    "plan": "ok config_dir desired_revision plan_digest? resource_digests dependencies state_observations changes"
    " rule_changes? access? what_if?"
    " blast_radius approvals_required lands? obstacles? interrupted? diagnostics",
    "apply": "ok config_dir actor? desired_revision state_observations changes applied_count deferred_count converged"
    " state_written resource_statuses status? nodes? diagnostics",
    "approve": "ok config_dir plan_digest? head? tree? changes? rule_changes? approval_id? resource?"
    " operation? approved_by? commit? diagnostics",
    "status": "ok config_dir state_observations in_sync? waiting may_approve? drifted last_entry? last_apply? debts?"
    " resource_digests resource_statuses observations diagnostics",
    "refresh": "ok operation config_dir state_observations resource_digests resource_statuses observations diagnostics",
    "import": "ok operation config_dir state_observations resource_digests resource_statuses observations diagnostics",
    "revoke": "ok operation approval_id resource? approval_commit? approved_by? approval_reason? decided_by? commit? diagnostics",
    "ready": "ok config_dir state_observations graphs cluster_policy? diagnostics",
    "unlock": "ok config_dir state_observations lock_removed diagnostics",
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_output_equals_its_file(name):
    assert FILES[name] == (DATA / name).read_text("utf-8")


def test_every_file_has_a_case():
    assert {path.name for path in DATA.iterdir()} == set(FILES)


@pytest.mark.parametrize("name", sorted(VERBS))
def test_envelope_has_the_fields_of_its_verb_in_order(name):
    form = json.loads(FILES[f"{name}.json"])
    declared = FIELDS[name.partition("_")[0]].split()
    assert list(form) == [field.rstrip("?") for field in declared if field.rstrip("?") in form]
    assert {field for field in declared if not field.endswith("?")} <= set(form)


@pytest.mark.parametrize("name", sorted(n for n in FILES if n.endswith(".json") and not n.startswith("status_ok")))
def test_absent_values_are_omitted_not_null(name):
    def walk(value, inside_type=False):
        if isinstance(value, dict):
            for key, part in value.items():
                if key not in ("property_type", "observations"):
                    walk(part)
        elif isinstance(value, list):
            for part in value:
                walk(part)
        else:
            assert value is not None

    walk(json.loads(FILES[name]))


@pytest.mark.parametrize("name", sorted(VERBS))
def test_ok_says_whether_an_error_is_among_the_diagnostics(name):
    outcome = VERBS[name]
    errors = [d for d in outcome.diagnostics if d.severity is Severity.ERROR]
    assert json.loads(FILES[f"{name}.json"])["ok"] is (not errors)
    printed = FILES[f"{name}.txt"]
    assert printed.count("ERROR ") == len(errors)


def test_an_outcome_of_no_verb_is_refused():
    outcome = VerbOutcome(config_dir=".")
    with pytest.raises(KeyError):
        render_json.envelope(outcome)
    with pytest.raises(KeyError):
        render_text.to_text(outcome)
