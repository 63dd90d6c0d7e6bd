"""`docs/cli.md`, made from the table of commands: `python -m tests.support.cli_page`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import Command
from tests.support.pages import cell, write_page

PAGE = "cli.md"
_HEAD = """\
# Commands

Exit codes of every command: 0 success (also with warnings), 1 a problem with severity error, 2 wrong usage.
`approve`, `revoke` and `countersign` also exit with 2 if the command line doesn't name what it signs yet
(`approval_not_confirmed`): they show it, and print the command that signs it. Commands that wait or gate have more codes, which
their help lists.

`make docs` makes this page from the table of commands.

## `gitops`

Plan, approve and apply clusters of graph databases from git.

| argument | meaning |
|---|---|
| `--version` | show program's version number and exit |
| `--as ACTOR` | name of the person or job that acts (default: git config gitops.actor) |
| `--no-color` | print without colours, as with the environment variable NO_COLOR |
| `-q, --quiet` | print only problems and the output that you asked for |
| `-v, --verbose` | print more: remedies for warnings, all changes of an entry, each change of a run |

You can also write these options after the command. They mean the same for all commands:

- `--quiet` leaves out progress and reports of results. It still prints errors, warnings and problems, and the output that you
  asked for: rows, records, diffs, entries, documents, and the content that an approver is about to sign.
- `--verbose` adds remedies for warnings, all changes of an entry in `gitops log`, and a line for each change while a run
  [applies](bot.md#progress), even a short one.
- Neither changes exit codes or the output of `--json`, which has no progress. `--log-format json` writes progress to
  standard error as lines of JSON.
"""


def commands(table: Iterable[Command] = COMMANDS, name: str = "gitops") -> Iterator[tuple[str, Command]]:
    """The commands by full name, in the order of the help."""
    for command in table:
        full_name = f"{name} {command.name}"
        yield full_name, command
        yield from commands(command.commands, full_name)


def cli_page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(name, command) for name, command in commands())])


def _section(name: str, command: Command) -> str:
    summary = command.summary[:1].upper() + command.summary[1:]
    lines = [f"## `{name}`", "", f"{summary}.", ""]
    arguments = list(command.arguments)
    if arguments:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| `{a.label.replace('|', chr(92) + '|')}` | {cell(a.meaning)} |" for a in arguments]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    write_page(PAGE, cli_page())
