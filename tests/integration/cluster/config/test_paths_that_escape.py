"""A cluster folder of somebody else declares files of this machine: no command opens one, and none quotes a word of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitops.cli.main import main

SECRET = "hunter2 correct horse"
WELL = "version: 1\ngraphs:\n  notes: {schema: notes.pg, queries: [notes.gq]}\n"
SCHEMA, QUERY = "node Note { title: String @key }\n", "query titles() { match { $n: Note } return { $n.title } }\n"
_DECLARATIONS: dict[str, Callable[[str], str]] = {
    "a schema": lambda at: WELL.replace("notes.pg", at),
    "a query file": lambda at: WELL.replace("[notes.gq]", f"[{at}]"),
    "a query by name": lambda at: WELL.replace("[notes.gq]", f"{{titles: {{file: {at}}}}}"),
    "a folder of queries": lambda at: WELL.replace("[notes.gq]", f"[{at.rpartition('/')[0]}]"),
    "a policy": lambda at: f"{WELL}policies:\n  base: {{file: {at}, applies_to: [graph.notes]}}\n",
}
_COMMANDS = (["lint"], ["validate", "--no-cache"], ["plan", "--no-cache"], ["fmt", "--check"], ["status"], ["apply"])


@pytest.fixture(params=["absolute", "above"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path of a secret beside the cluster folder, as the folder declares it."""
    (tmp_path / "cluster").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.gq").write_text(f"{SECRET}\n")
    return f"{tmp_path}/secret/key.gq" if request.param == "absolute" else "../secret/key.gq"


@pytest.mark.parametrize("what", list(_DECLARATIONS))
def test_a_declared_path_never_leads_out_of_the_folder(
    what: str, written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cluster"
    for name, text in (("cluster.yaml", _DECLARATIONS[what](written)), ("notes.pg", SCHEMA), ("notes.gq", QUERY)):
        (folder / name).write_text(text)
    for command in _COMMANDS:
        code = main([*command, "--config", str(folder)])
        said = "".join(capsys.readouterr())
        shows_policies = command[0] not in ("lint", "fmt")
        if command[0] != "status" and (what != "a policy" or shows_policies):
            assert code == 1, (command, said)
            assert "source_path_escapes" in said, (command, said)
        assert not any(word in said for word in SECRET.split()), (command, said)
    assert not (folder / "__cluster").exists()


def test_the_operator_may_name_files_outside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An argument is the operator's own word; only what a folder declares is confined."""
    (tmp_path / "cluster").mkdir()
    (tmp_path / "far.pg").write_text(SCHEMA)
    (tmp_path / "far.gq").write_text(QUERY)
    assert (
        main(["lint", "--config", str(tmp_path / "cluster"), "--schema", f"{tmp_path}/far.pg", f"{tmp_path}/far.gq"])
        == 0
    )
    capsys.readouterr()
