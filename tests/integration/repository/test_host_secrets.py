"""Values of secrets for hosts: where the rules have them, for whom, and what a message says without a value."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gitops.cluster.model.trust import HostSecret
from gitops.core.errors import GitopsError
from gitops.repository.wiring.host_secrets import SecretValues


def test_a_value_comes_from_where_the_rules_have_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"from a file\n")
    prints = (sys.executable, "-c", "print('from a command')")
    rules = [
        HostSecret("one", ("web1",), "env", ("TOKEN",)),
        HostSecret("two", ("web1", "web2"), "file", (str(file),)),
        HostSecret("three", ("web1",), "command", prints),
    ]
    values = SecretValues(rules, {"TOKEN": "from a variable"})
    found = [values(name, "web1") for name in ("one", "two", "three")]
    assert found == [b"from a variable", b"from a file\n", b"from a command\n"]
    file.unlink()
    assert values("two", "web2") == b"from a file\n", "a run reads it once"


REFUSED = {
    "not listed": (HostSecret("token", ("web2",), "env", ("TOKEN",)), "host_secret_not_allowed"),
    "unknown": (HostSecret("other", ("web1",), "env", ("TOKEN",)), "host_secret_not_allowed"),
    "not set": (HostSecret("token", ("web1",), "env", ("MISSING",)), "host_secret_unavailable"),
    "no file": (HostSecret("token", ("web1",), "file", ("/nonexistent",)), "host_secret_unavailable"),
    "fails": (
        HostSecret("token", ("web1",), "command", (sys.executable, "-c", "print('s3cret'); exit(1)")),
        "host_secret_unavailable",
    ),
    "no program": (HostSecret("token", ("web1",), "command", ("/nonexistent",)), "host_secret_unavailable"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_no_value(case: str) -> None:
    rule, code = REFUSED[case]
    with pytest.raises(GitopsError) as refused:
        SecretValues([rule], {"TOKEN": "s3cret"})("token", "web1")
    assert refused.value.code == code
    assert "s3cret" not in refused.value.detail
