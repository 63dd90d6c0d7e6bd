"""The command, and what was known once and is found to be gone: entries, approvals, and heads that were rolled back."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.audit.report import AuditReport, AuditWitnesses
from gitops.cluster.audit.statement import (
    NAMESPACE,
    PAYLOAD_TYPE,
    Envelope,
    EnvelopeSignature,
    armored,
    pae,
    read_envelope,
    signature_of,
    write_envelope,
)
from gitops.cluster.audit.verb import AuditScope
from gitops.cluster.ledger.chain import ENTRY, VerifiedEntry, approvals_prefix
from gitops.cluster.ledger.heads import HeadPin
from gitops.core.canonical import canonical
from gitops.core.errors import IntegrityError
from gitops.git.port import NewCommit, RefUpdate
from gitops.git.repository import GitRepository
from gitops.git.signatures import sign, verify_detached
from tests.support.audit_desk import APPROVALS as APPROVAL_REFS
from tests.support.audit_desk import SEEN, TRACKED, Desk
from tests.support.audited import CLUSTER, LEDGER, MAIN, STATE, Lie, Life, declared, person, saying
from tests.support.git_fixture import public_key, run
from tests.support.pages import ROOT

SARIF = Draft7Validator(json.loads((ROOT / "tests" / "data/sarif/sarif-schema-2.1.0.json").read_text("utf-8")))


# -- forms -------------------------------------------------------------------------------------------------------------


def test_the_forms_of_a_good_report(desk: Desk) -> None:
    head = desk.life.chain()[-1]
    assert desk.run("audit") == (0, f"audit good: brain: 14 of 14 ledger entries verified, head {head[:8]}\n")
    assert desk.json("audit", "--format", "json") == {
        "ok": True,
        "cluster": "brain",
        "head": head,
        "entries": 14,
        "verified": 14,
        "findings": [],
        "notes": [],
        "problems": [],
    }
    log = desk.json("audit", "--format", "sarif")
    SARIF.validate(log)
    assert log["runs"][0]["results"] == []


def test_findings_as_sarif(desk: Desk) -> None:
    forged = desk.life.forge(8, Lie(message="apply(brain): [x](http://evil) {0} \u202e\x1b[31m\n"))
    desk.serve(forged)
    desk.fetch()
    code, text = desk.run("audit", "--format", "sarif")
    log = json.loads(text)
    SARIF.validate(log)
    (result, *others) = log["runs"][0]["results"]
    assert (code, result["ruleId"]) == (1, "ledger_entry_invalid")
    assert {each["ruleId"] for each in others} == {"ledger_diverged"}
    assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == f"brain/8/{forged}"
    assert result["properties"] == {"commit": forged, "entry": 8}
    rules = [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]]
    assert [rules[each["ruleIndex"]] for each in (result, *others)] == [each["ruleId"] for each in (result, *others)]
    prints = [each["partialFingerprints"]["gitopsProblem/v1"] for each in (result, *others)]
    assert len(set(prints)) == len(prints)
    again = json.loads(desk.run("audit", "--format", "sarif")[1])
    assert again == log


def test_hostile_texts_of_a_ledger_act_on_nobody(desk: Desk) -> None:
    evil = "x\u202e\x1b[31m[a](http://evil){0}\n::error::"
    entry = json.loads(desk.life.file(8, ENTRY))
    state = json.loads(desk.life.file(8, STATE))
    state["applied_revision"]["resources"][f"query.notes.{evil}"] = {"digest": evil}
    hostile = (
        {ENTRY: json.dumps({**entry, "kind": evil}).encode()},
        {ENTRY: json.dumps({**entry, evil: evil}).encode()},
        {STATE: json.dumps(state).encode()},
        {"trust/gitops.yaml": f"{evil}: {evil}".encode()},
    )
    for files in hostile:
        desk.serve(desk.life.forge(8, Lie(files=files)))
        desk.fetch()
        for form in ("text", "json", "sarif"):
            code, text = desk.run("audit", "--format", form)
            assert code == 1
            assert not set(text) & set("\x1b\u202e")
            assert not any(line.startswith("::") for line in text.splitlines())
        SARIF.validate(json.loads(text))
    for arguments in (["log"], ["log", "--json"]):
        assert "\u202e" not in desk.run(*arguments)[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "--format", "text"],
        ["--since", "3", "--pin", "x"],
        ["--sign"],
        ["--output", "x"],
        ["--accept", "x", "--since", "3"],
        ["--accept", "x", "--format", "in-toto"],
        ["--verify-envelope", "x", "--witness", "y"],
        ["--verify-envelope", "x", "--format", "sarif"],
    ],
)
def test_options_that_do_not_go_together(desk: Desk, arguments: list[str]) -> None:
    assert desk.run("audit", *arguments)[0] == 2


# -- where it begins ---------------------------------------------------------------------------------------------------


def test_since_takes_a_number_or_a_commit(desk: Desk) -> None:
    fifth = desk.life.chain()[4]
    for name in ("5", fifth, fifth[:9], fifth[:9].upper()):
        assert desk.run("audit", "--since", name)[1].startswith(
            "audit good: brain: 9 of 9 ledger entries verified after"
        )
        assert desk.json("audit", "--since", name, "--json")["since"] == 5
    for wrong in ("0", "15", fifth[:6], "f" * 40, "main", "-1"):
        assert desk.run("audit", f"--since={wrong}")[0] == 2
        assert "usage_error" in desk.run("audit", f"--since={wrong}")[1]


def test_a_pin_moves_with_what_was_verified_and_with_nothing_else(desk: Desk) -> None:
    chain, pin = desk.life.chain(), desk.home / "brain.pin"
    desk.forget_approvals()
    desk.serve(chain[9])
    desk.fetch()
    assert desk.json("audit", "--json", "--pin", str(pin))["verified"] == 10
    noted = json.loads(pin.read_bytes())
    assert noted == {"version": 1, "cluster": "brain", "number": 10, "commit": chain[9]}
    desk.serve(chain[13])
    desk.fetch()
    assert desk.json("audit", "--json", "--pin", str(pin))["since"] == 10
    assert json.loads(pin.read_bytes())["number"] == 14
    kept = pin.read_bytes()
    desk.serve(desk.life.forge(9, Lie(saying(operation="other"))))
    desk.fetch()
    # The pin lies outside of the repository: not even a new clone is shown another ledger.
    shutil.rmtree(desk.clone)
    run("git", "clone", "-q", str(desk.server), str(desk.clone), home=desk.home)
    assert "ledger_diverged" in desk.codes("--pin", str(pin))
    assert pin.read_bytes() == kept


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"version":2,"cluster":"brain","number":1,"commit":"' + b"a" * 40 + b'"}', b"\xff"]
)
def test_a_pin_that_cannot_be_used_is_refused(desk: Desk, content: bytes) -> None:
    pin = desk.home / "pin"
    pin.write_bytes(content)
    code, text = desk.run("audit", "--pin", str(pin))
    assert (code, "pin_invalid" in text, pin.read_bytes()) == (1, True, content)
    other = {"version": 1, "cluster": "heart", "number": 1, "commit": "a" * 40}
    pin.write_bytes(json.dumps(other).encode())
    assert "the pin belongs to cluster heart" in desk.run("audit", "--pin", str(pin))[1]


# -- statements --------------------------------------------------------------------------------------------------------


def test_statements_of_every_entry(desk: Desk) -> None:
    folder = desk.home / "out"
    assert desk.run("audit", "--format", "in-toto", "--output", str(folder))[0] == 0
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [
        f"{number:06}-{commit[:12]}.statement.json" for number, commit in enumerate(desk.life.chain(), start=1)
    ]
    code, text = desk.run("audit", "--format", "in-toto")
    assert code == 0
    lines = [line for line in text.splitlines() if line.startswith("{")]
    assert [file.read_text() for file in files] == [f"{line}\n" for line in lines]
    for number, line in enumerate(lines, start=1):
        form = json.loads(line)
        assert canonical(form).decode() == line
        assert form["predicate"]["signer"] == "bot"
        assert form["predicate"]["entry"]["number"] == number
        (tree,) = [s["digest"]["gitTree"] for s in form["subject"] if "gitTree" in s["digest"]]
        assert tree == desk.git("rev-parse", f"{form['predicate']['entry']['source']['commit']}:cluster")
        (state,) = [s["digest"]["sha256"] for s in form["subject"] if "sha256" in s["digest"]]
        shown = run("git", "-C", str(desk.clone), "rev-parse", f"{form['predicate']['ledgerCommit']}", home=desk.home)
        assert shown == desk.life.chain()[number - 1]
        assert len(state) == 64


def test_a_ledger_with_a_lie_gives_statements_of_what_holds(desk: Desk) -> None:
    desk.serve(desk.life.forge(8, Lie(saying(changes=(), approvals=()))))
    desk.fetch()
    code, text = desk.run("audit", "--format", "in-toto")
    assert code == 1
    assert len([line for line in text.splitlines() if line.startswith("{")]) == 7
    assert "ERROR ledger_state_mismatch entry 8" in text


@pytest.fixture
def envelopes(desk: Desk) -> Path:
    """The envelopes of the last four entries, signed by ada, one on each line."""
    code, text = desk.run("audit", "--format", "in-toto", "--sign", "--since", "10")
    assert code == 0
    path = desk.home / "envelopes.jsonl"
    path.write_text("".join(f"{line}\n" for line in text.splitlines() if line.startswith("{")))
    return path


def test_envelopes_are_verified_by_the_ledger_at_hand(desk: Desk, envelopes: Path) -> None:
    code, text = desk.run("audit", "--verify-envelope", str(envelopes))
    assert code == 0
    assert text.splitlines()[0] == f"envelope 1 good: entry 11 ({desk.life.chain()[10]}), signed by ada"
    form = desk.json("audit", "--json", "--verify-envelope", str(envelopes))
    assert [each["entry"] for each in form["envelopes"]] == [11, 12, 13, 14]
    one = desk.home / "one.json"
    one.write_text(json.dumps(json.loads(envelopes.read_text().splitlines()[0]), indent=2))
    assert desk.run("audit", "--verify-envelope", str(one))[0] == 0


def test_ssh_keygen_agrees(desk: Desk, envelopes: Path) -> None:
    signers, signature = desk.home / "signers", desk.home / "sig"
    signers.write_text(f'ada namespaces="{NAMESPACE}" {public_key(desk.life.keys["ada"])}\n')
    for line in envelopes.read_bytes().splitlines():
        envelope = read_envelope(line)
        signature.write_text(armored(envelope.signatures[0]))
        said = run(
            *("ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "ada", "-n", NAMESPACE, "-s", str(signature)),
            home=desk.home,
            stdin=pae(envelope.payload_type, envelope.payload),
        )
        assert said.startswith(f'Good "{NAMESPACE}" signature for ada')
        assert envelope.signatures[0].keyid in said


def _signed(desk: Desk, who: str, payload: bytes, namespace: str = NAMESPACE, kind: str = PAYLOAD_TYPE) -> Envelope:
    armor = sign(pae(kind, payload), str(desk.life.keys[who]), namespace=namespace)
    key = verify_detached(pae(kind, payload), armor, namespace).key
    return Envelope(kind, payload, (signature_of(armor, key),))


def _changed(payload: bytes, edit: Callable[[dict], None]) -> bytes:
    form = json.loads(payload)
    edit(form)
    return canonical(form)


def test_an_envelope_that_does_not_hold_is_refused(desk: Desk, envelopes: Path) -> None:
    good = read_envelope(envelopes.read_bytes().splitlines()[0])
    payload, fork = good.payload, desk.life.forge(11, Lie(saying(operation="other")))
    later = read_envelope(envelopes.read_bytes().splitlines()[1])
    bad = {
        "another payload under the signature": Envelope(good.payload_type, later.payload, good.signatures),
        "another type": Envelope("text/plain", payload, good.signatures),
        "another type, signed": _signed(desk, "ada", payload, kind="text/plain"),
        "a stranger": _signed(desk, "mallory", payload),
        "a signature for a commit": _signed(desk, "ada", payload, namespace="git"),
        "no signature that counts": Envelope(good.payload_type, payload, (EnvelopeSignature(b"x", "SHA256:y"),)),
        "no statement": _signed(desk, "ada", b"{}"),
        "no JSON": _signed(desk, "ada", b"\xff"),
        "another predicate": _signed(desk, "ada", _changed(payload, lambda f: f.update(predicateType="urn:x"))),
        "another entry's number": _signed(
            desk, "ada", _changed(payload, lambda f: f["predicate"]["entry"].update(number=9))
        ),
        "an entry of another ledger": _signed(
            desk, "ada", _changed(payload, lambda f: f["predicate"].update(ledgerCommit=fork))
        ),
    }
    for name, envelope in bad.items():
        path = desk.home / "bad.json"
        path.write_bytes(write_envelope(envelope))
        code, text = desk.run("audit", "--verify-envelope", str(path))
        assert (code, "envelope_invalid" in text) == (1, True), name
    both = Envelope(good.payload_type, payload, (*bad["a stranger"].signatures, *good.signatures))
    path.write_bytes(write_envelope(both))
    assert desk.run("audit", "--verify-envelope", str(path))[0] == 0
    path.write_bytes(b"")
    assert desk.run("audit", "--verify-envelope", str(path))[0] == 1
    assert "source_missing" in desk.run("audit", "--verify-envelope", str(desk.home / "none"))[1]


# -- the trail ---------------------------------------------------------------------------------------------------------


def test_the_log_reads_no_further_than_it_shows(desk: Desk) -> None:
    """The older entries are not even there."""
    old = [desk.git("rev-parse", f"{commit}^{{tree}}") for commit in desk.life.chain()[:8]]
    for tree in old:
        (desk.server / "objects" / tree[:2] / tree[2:]).unlink(missing_ok=True)
    code, text = desk.run("log", "--limit", "3", "--verbose", at=desk.server)
    assert code == 0
    assert [line.split()[1] for line in text.splitlines() if line.startswith("entry")] == ["14", "13", "12"]
    shown = desk.run("log", at=desk.server)
    assert (shown[0], "entry unreadable" in shown[1]) == (1, True)


APPROVALS = approvals_prefix(CLUSTER)


def signed(life: Life) -> dict[str, str]:
    """All approval branches; the newest names entry 12."""
    return dict(life.git.refs(APPROVALS))


def told(life: Life, head: str, **known: dict[str, str]) -> AuditReport:
    """The verdict, given what is known."""
    return life.audit(head, scope=AuditScope(witnesses=AuditWitnesses(**known), anchor=life_anchor(life)))


def life_anchor(life: Life):
    """As the command line does it."""
    rule = life.repository.config().cluster(None)
    return lambda first: life.repository.anchor(rule, first)


def child_of(repository: GitRepository, parent: str, message: str = "x\n") -> str:
    """A commit that anybody can make."""
    new = NewCommit(repository.commit(parent).tree, (parent,), person("mallory"), message)
    return repository.write_commit(new, signing_key=None)


def codes(report: AuditReport) -> list[str]:
    return [finding.code for finding in report.findings]


def test_the_approvals_of_a_true_ledger_name_its_entries(life: Life) -> None:
    assert len(signed(life)) == 3
    report = told(life, life.chain()[-1], signed=signed(life))
    assert (report.findings, report.notes) == ((), ())


@pytest.mark.parametrize("number", range(1, 12))
def test_an_approval_reveals_a_rewound_ledger(life: Life, number: int) -> None:
    report = told(life, life.chain()[number - 1], signed=signed(life))
    assert set(codes(report)) == {"ledger_diverged"}
    assert {f.number for f in report.findings} == {0}
    assert report.verified == number
    assert any("gitops/approvals/brain/" in f.detail and "names entry" in f.detail for f in report.findings)


def test_what_was_rewound_before_the_newest_approval_is_not_revealed_by_it(life: Life) -> None:
    assert told(life, life.chain()[11], signed=signed(life)).ok


def test_an_approval_reveals_a_fork_that_is_a_true_ledger_itself(life: Life) -> None:
    fork = life.forge(6, Lie(saying(operation="another run")))
    assert life.audit(fork).ok
    report = told(life, fork, signed=signed(life))
    assert codes(report) == ["ledger_diverged"]
    assert "which follows entry" in report.findings[0].detail
    # One finding, with each witness in it.
    assert all(ref.removeprefix("refs/heads/") in report.findings[0].detail for ref in signed(life))


def test_an_approval_reveals_a_ledger_that_was_begun_anew(life: Life) -> None:
    anew = life.forge(1, Lie(saying(operation="begin again")))
    assert life.audit(anew).ok
    report = told(life, anew, signed=signed(life))
    assert codes(report) == ["ledger_diverged"]
    assert "of a chain with a different first entry" in report.findings[0].detail


def test_what_anybody_makes_up_stops_nobody(life: Life) -> None:
    head, repository = life.chain()[-1], life.git
    unsigned = child_of(repository, head)
    by_stranger = life.forge(14, Lie(saying(operation="mine"), signer="mallory"))
    other_cluster = life.forge(1, Lie(lambda e: replace(e, target=replace(e.target, cluster="heart"))))
    invented = {
        "a commit that is no entry": child_of(repository, unsigned),
        "a source commit": child_of(repository, repository.resolve(MAIN) or ""),
        "an entry by a key that may not": child_of(repository, by_stranger),
        "an entry of another cluster": child_of(repository, other_cluster),
        "a commit without a parent": life.chain()[0],
        "a commit that is not there": "ab" * 20,
    }
    report = told(life, head, signed={f"{APPROVALS}{n}": commit for n, commit in enumerate(invented.values())})
    assert (report.findings, report.ok) == ((), True)


def test_a_beginning_that_does_not_stand_up_to_its_anchor_proves_nothing(life: Life) -> None:
    anew = life.forge(1, Lie(saying(operation="begin again")))
    approval, statement = life.approval(next(iter(signed(life).values())))
    named = {f"{APPROVALS}X": life.forge_approval(approval, replace(statement, ledger_head=anew), "ada")}
    assert not told(life, life.chain()[-1], signed=named).ok

    def refuse(first: VerifiedEntry) -> None:
        raise IntegrityError("ledger_diverged", f"{first.commit.id} is not of this branch")

    scope = AuditScope(witnesses=AuditWitnesses(signed=named), anchor=refuse)
    assert life.audit(life.chain()[-1], scope=scope).ok
    assert life.audit(life.chain()[-1], scope=replace(scope, anchor=AuditScope().anchor)).ok


def test_an_entry_of_another_copy_stops_nobody(life: Life) -> None:
    """The bot signs both ledgers with one key; anybody can put a commit on top of an entry of the other."""
    anew = life.forge(1, Lie(saying(operation="begin again")))
    approval, statement = life.approval(next(iter(signed(life).values())))
    elsewhere = replace(statement, ledger_head=anew, target=replace(statement.target, repository="a copy"))
    documents = {
        "not an approval": child_of(life.git, anew),
        "not trusted": life.forge_approval(approval, replace(statement, ledger_head=anew), "mallory"),
        "its signature is not valid": life.forge_approval(
            approval, replace(statement, ledger_head=anew), "ada", within="ben"
        ),
        "of repository a copy": life.forge_approval(approval, elsewhere, "ada"),
    }
    for why, commit in documents.items():
        report = told(life, life.chain()[-1], signed={f"{APPROVALS}X": commit})
        assert report.ok, why
        (note,) = [note for note in report.notes if "proves nothing" in note]
        assert why in note


def test_every_head_that_was_seen_here_is_an_entry(life: Life) -> None:
    chain = life.chain()
    assert told(life, chain[-1], seen={"a": chain[-1], "b": chain[3]}).ok
    report = told(life, chain[5], seen={"refs/gitops/seen/brain": chain[9], "b": chain[5]})
    assert codes(report) == ["ledger_diverged"]
    assert "refs/gitops/seen/brain" in report.findings[0].detail
    # The note outlives the objects.
    assert codes(told(life, chain[5], seen={"the note": "ab" * 20})) == ["ledger_diverged"]


def test_witnesses(life: Life) -> None:
    chain = life.chain()
    fork = life.forge(6, Lie(saying(operation="another run")))
    forged = life.forge(14, Lie(saying(operation="mine"), signer="mallory"))
    for commit, expected in (
        (chain[-1], []),
        (chain[4], []),
        (fork, ["ledger_diverged"]),
        (forged, ["witness_unproven"]),
        ("ab" * 20, ["witness_unproven"]),
    ):
        assert codes(told(life, chain[-1], copies={"colleague": commit})) == expected
    assert told(life, chain[-1], copies={"w": chain[4]}).notes == ("witness w has an older head, entry 5",)
    frozen = told(life, chain[4], copies={"w": chain[-1]})
    assert codes(frozen) == ["ledger_behind"]
    assert "an old state is served here" in frozen.findings[0].detail


def test_a_bad_entry_and_what_others_know_are_told_together(life: Life) -> None:
    forged = life.forge(5, Lie(message="apply(brain): nothing\n"))
    report = told(life, forged, signed=signed(life))
    assert codes(report) == ["ledger_entry_invalid", "ledger_diverged"]
    assert report.finding == report.findings[0]


def test_an_apply_on_a_rewound_server_is_refused_although_its_own_notes_were_rewound_too(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    refresh(life.workspace())
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    *_, before, head = life.chain()
    for ref in (LEDGER, f"refs/gitops/seen/{CLUSTER}"):
        life.git.update_refs([RefUpdate(ref, head, before)])
    outcome = life.apply()
    assert "ledger_diverged" in [d.code for d in outcome.diagnostics if d.severity == "error"]
    assert life.git.resolve(LEDGER) == before
    for ref in (LEDGER, f"refs/gitops/seen/{CLUSTER}"):
        life.git.update_refs([RefUpdate(ref, before, head)])
    assert life.apply().ok
    assert life.audit(life.chain()[-1]).ok


def test_what_an_audit_verified_is_remembered(desk: Desk) -> None:
    head = desk.life.chain()[-1]
    assert desk.run("audit")[0] == 0
    assert desk.git("rev-parse", SEEN) == head
    assert HeadPin(desk.clone / ".git", CLUSTER).read() == head


@pytest.mark.parametrize("lost", [[], ["ref"], ["note"]])
def test_a_rewound_ledger_is_refused_by_every_command_offline_too(desk: Desk, lost: list[str]) -> None:
    desk.run("audit")
    # Behind every approval, which would tell of it themselves.
    desk.serve(desk.life.chain()[12])
    desk.fetch()
    if "ref" in lost:
        desk.git("update-ref", "-d", SEEN)
    if "note" in lost:
        (desk.clone / ".git/gitops/seen/brain").unlink()
    assert desk.codes() == ["ledger_diverged"]
    for command in (["log"], ["status"], ["plan", "--cluster", CLUSTER], ["audit", "--verify-envelope", "/dev/null"]):
        code, text = desk.run(*command)
        assert (code, "ledger_diverged" in text) == (1, True), command
    desk.serve(desk.life.chain()[13])
    desk.fetch()
    assert desk.codes() == []


@pytest.mark.parametrize(("fetched", "behind"), [(11, "2 entries behind: "), (12, "1 entry behind: ")])
def test_a_clone_that_has_not_fetched_is_behind_and_not_rewound(desk: Desk, fetched: int, behind: str) -> None:
    """A command that asks the server has seen newer entries than the branch that was fetched last."""
    head = desk.life.chain()[-1]
    desk.serve(desk.life.chain()[fetched])
    desk.forget_approvals()
    desk.fetch()
    shutil.rmtree(desk.clone / ".git/logs/refs/remotes/origin/gitops", ignore_errors=True)
    desk.serve(head)
    assert desk.run("status")[0] == 0
    for command in (["log"], ["audit"]):
        code, text = desk.run(*command)
        assert (code, text.count("ledger_diverged"), text.count("ledger_behind")) == (1, 0, 1), command
        assert f"this clone is {behind}" in text
        assert re.search(r"fix: fetch, then run the command again: git (-C \S+ )?fetch origin;", text)
    desk.fetch()
    for command in (["log"], ["audit"]):
        assert desk.run(*command)[0] == 0


def test_a_deleted_ledger_is_refused(desk: Desk) -> None:
    desk.run("audit")
    desk.serve(None)
    desk.fetch()
    assert desk.git("for-each-ref", TRACKED) == ""
    for command in (["audit"], ["log"], ["status"], ["plan", "--cluster", CLUSTER]):
        code, text = desk.run(*command)
        assert (code, "ledger_diverged" in text) == (1, True), command


def test_a_fresh_clone_is_told_by_the_approvals(desk: Desk) -> None:
    for head in (desk.life.chain()[8], None):
        desk.serve(head)
        desk.fetch()
        for command in (["status"], ["plan", "--cluster", CLUSTER]):
            code, text = desk.run(*command)
            assert (code, "ledger_diverged" in text, "gitops/approvals/brain/" in text) == (1, True, True), command
        assert desk.git("for-each-ref", SEEN) == ""
    desk.serve(desk.life.chain()[13])
    assert desk.run("status")[0] == 0


def test_a_clone_that_is_up_to_date_is_told_when_it_plans(desk: Desk) -> None:
    approvals = dict(
        line.split()[::-1] for line in desk.git("show-ref", at=desk.server).splitlines() if APPROVAL_REFS in line
    )
    desk.forget_approvals()
    desk.serve(desk.life.chain()[8])
    assert desk.run("status")[0] == 0
    for ref, commit in approvals.items():
        desk.serve(commit, ref)
    code, text = desk.run("plan", "--cluster", CLUSTER)
    assert (code, "ledger_diverged" in text, "gitops/approvals/brain/" in text) == (1, True, True)


def test_a_mirror_that_prunes_remembers_beside_its_refs(desk: Desk) -> None:
    mirror = desk.home / "mirror.git"
    run("git", "clone", "-q", "--mirror", str(desk.server), str(mirror), home=desk.home)
    assert desk.run("audit", at=mirror)[0] == 0
    for head in (desk.life.chain()[12], None):
        desk.serve(head)
        desk.serve(head, SEEN)
        desk.git("remote", "update", "--prune", at=mirror)
        assert desk.git("for-each-ref", "--format=%(objectname)", SEEN, at=mirror) == (head or "")
        code, text = desk.run("audit", at=mirror)
        assert (code, "ledger_diverged" in text) == (1, True)


def test_replaced_objects_and_grafts_change_nothing(desk: Desk) -> None:
    forged = desk.life.forge(8, Lie(saying(changes=(), approvals=())))
    desk.serve(forged)
    desk.fetch()
    broken = desk.json("audit", "--json")["findings"]
    true = desk.life.chain()[7]
    desk.git("replace", forged, true)
    assert desk.git("cat-file", "commit", forged) == desk.git("cat-file", "commit", true)
    assert desk.json("audit", "--json")["findings"] == broken
    (desk.clone / ".git/info").mkdir(exist_ok=True)
    (desk.clone / ".git/info/grafts").write_text(f"{forged} {desk.life.chain()[6]}\n")
    assert "grafts" in desk.run("audit")[1]


def test_a_repository_that_cannot_be_written_is_audited_with_a_note(desk: Desk) -> None:
    for place in (".git/refs/gitops", ".git/gitops"):
        (desk.clone / place).write_text("in the way")
    report = desk.json("audit", "--json")
    assert report["ok"]
    assert "could not store the head" in report["notes"][0]


def test_accepting_another_ledger_takes_its_whole_head(desk: Desk) -> None:
    desk.run("audit")
    anew = desk.life.forge(1, Lie(saying(operation="begin again")))
    desk.serve(anew)
    desk.forget_approvals()
    desk.fetch()
    assert desk.codes() == ["ledger_diverged"]
    for wrong in (anew[:12], desk.life.chain()[-1], "main"):
        assert "usage_error" in desk.run("audit", "--accept", wrong)[1]
        assert desk.git("rev-parse", SEEN) == desk.life.chain()[-1]
    code, text = desk.run("audit", "--accept", anew)
    assert (code, text.count("no longer remembered")) == (0, 2)
    assert desk.codes() == []
    assert desk.run("status")[0] == 0


def test_a_ledger_that_does_not_hold_is_not_accepted(desk: Desk) -> None:
    desk.run("audit")
    forged = desk.life.forge(2, Lie(message="nothing\n"))
    desk.serve(forged)
    desk.fetch()
    assert desk.run("audit", "--accept", forged)[0] == 1
    assert desk.git("rev-parse", SEEN) == desk.life.chain()[-1]


def test_approvals_of_the_ledger_before_are_named_when_another_is_accepted(desk: Desk) -> None:
    desk.run("audit")
    anew = desk.life.forge(1, Lie(saying(operation="begin again")))
    desk.serve(anew)
    desk.fetch()
    code, text = desk.run("audit", "--accept", anew)
    assert (code, text.count("names an entry that the ledger does not have; delete that branch")) == (0, 3)
    assert desk.codes() == ["ledger_diverged"]


def test_a_witness_reveals_a_frozen_ledger(desk: Desk) -> None:
    colleague = desk.home / "colleague"
    run("git", "clone", "-q", str(desk.server), str(colleague), home=desk.home)
    desk.run("status", at=colleague)
    frozen = desk.life.chain()[12]
    desk.serve(frozen)
    desk.fetch()
    assert desk.codes() == []
    assert set(desk.codes("--witness", str(colleague))) == {"ledger_behind"}
    desk.git("remote", "add", "second", str(colleague))
    assert set(desk.codes("--witness", "second")) == {"ledger_behind"}
    assert desk.json("audit", "--json", "--witness", str(desk.server))["notes"][0].endswith("has the same head")
    empty = desk.home / "empty.git"
    run("git", "init", "-q", "--bare", str(empty), home=desk.home)
    assert "witness_unproven" in desk.run("audit", "--witness", str(empty))[1]
    assert "git_remote_unavailable" in desk.run("audit", "--witness", str(desk.home / "nowhere"))[1]
