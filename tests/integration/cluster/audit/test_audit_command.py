"""`gitops audit` and `gitops log` as an auditor runs them, in clones of every kind: what they print, note and refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

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
from gitops.cluster.ledger.chain import ENTRY
from gitops.core.canonical import canonical
from gitops.git.signatures import sign, verify_detached
from tests.support.audit_desk import Desk
from tests.support.audited import STATE, Lie, saying
from tests.support.git_fixture import public_key, run
from tests.support.pages import ROOT

SARIF = Draft7Validator(json.loads((ROOT / "tests" / "data/sarif/sarif-schema-2.1.0.json").read_text("utf-8")))


# -- forms -------------------------------------------------------------------------------------------------------------


def test_the_forms_of_a_good_report(desk: Desk) -> None:
    head = desk.life.chain()[-1]
    assert desk.run("audit") == (0, f"audit good: brain: 14 of 14 ledger entry(s) verified, head {head[:8]}\n")
    assert desk.json("audit", "--format", "json") == {
        "ok": True,
        "cluster": "brain",
        "head": head,
        "entries": 14,
        "verified": 14,
        "findings": [],
        "notes": [],
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
            "audit good: brain: 9 of 9 ledger entry(s) verified after"
        )
        assert desk.json("audit", "--since", name, "--json")["since"] == 5
    for wrong in ("0", "15", fifth[:6], "f" * 40, "main", "-1"):
        assert desk.run("audit", f"--since={wrong}")[0] == 1
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
    assert "it is the pin of cluster heart" in desk.run("audit", "--pin", str(pin))[1]


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
    code, text = desk.run("log", "--limit", "3", at=desk.server)
    assert code == 0
    assert [line.split()[1] for line in text.splitlines() if line.startswith("entry")] == ["14", "13", "12"]
    shown = desk.run("log", at=desk.server)
    assert (shown[0], "entry unreadable" in shown[1]) == (1, True)
