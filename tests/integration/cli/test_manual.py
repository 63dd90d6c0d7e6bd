"""The manual page, laid out by the program that shows it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from gitops.cli.main import main


def test_the_manual_page_has_every_command_and_no_error(capsys):
    assert main(["manual"]) == 0
    page = capsys.readouterr().out
    assert "\\&gitops graph query" in page
    if shutil.which("groff") is None:
        pytest.skip("needs the package groff")
    run = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-cbou"], input=page, capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    assert "--detailed-exitcode" in run.stdout
    assert "gitops graph branch merge" in run.stdout


def test_the_manual_page_has_what_stands_below_the_arguments_of_a_command(capsys):
    main(["manual"])
    page = capsys.readouterr().out
    assert "3 waits for a person, 4 conflict with a newer entry" in page.partition("\\&gitops bot plan")[2]
    assert "work from commits and the ledger branch, without a checkout" in page.partition("\\&gitops status")[2]
