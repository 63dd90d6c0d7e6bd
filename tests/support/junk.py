"""Branches that anyone who may push can make where approvals are looked for: many, and with long histories of their own."""

from __future__ import annotations

from pathlib import Path

from tests.support.git_fixture import run


def push_junk(git_dir: Path, branches: int, commits: int, cluster: str = "brain") -> None:
    """That many approval branches, each on the same foreign history of that many commits."""
    stream = ["blob\nmark :1\ndata 2\nx\n"]
    author = "committer mallory <mallory@example.org>"
    for mark in range(2, commits + 2):
        base = f"from :{mark - 1}\n" if mark > 2 else ""
        stream.append(f"commit refs/junk\nmark :{mark}\n{author} {mark} +0000\ndata 4\njunk\n{base}M 100644 :1 f\n\n")
    for number in range(branches):
        ref = f"refs/heads/gitops/approvals/{cluster}/01HF7YAT00000000J{number:09}"
        message = f"approve({cluster}): {number:06}"
        stream.append(
            f"commit {ref}\n{author} 1 +0000\ndata {len(message)}\n{message}\nfrom :{commits + 1}\nM 100644 :1 g{number}\n\n"
        )
    command = ("git", f"--git-dir={git_dir}", "fast-import", "--quiet", "--force")
    run(*command, home=git_dir.parent, stdin="".join(stream).encode())
