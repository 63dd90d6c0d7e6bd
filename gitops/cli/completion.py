"""`gitops completion`: a script that completes commands, options and their values in a shell, made from the table of commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import Command
from gitops.cli.parser import EVERYWHERE
from gitops.cli.shared import OK, say

_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_BASH = """\
_gitops() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$command $word" in
            {paths}) command="${{command:+$command }}$word" ;;
        esac
    done
    local words=
    case "$command $before" in
{values}
        *) case "$command" in
{words}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _gitops gitops
"""


def completion(options: argparse.Namespace) -> int:
    """`gitops completion`. File names are completed where nothing else fits."""
    script = bash_script()
    say(f"{_ZSH}{script}" if options.shell == "zsh" else script)
    return OK


def bash_script() -> str:
    """The script for bash; zsh runs it with its emulation."""
    everywhere = [name for each in EVERYWHERE for name in each.names]
    paths, values, words = [], [], []
    words.append(_case("", [command.name for command in COMMANDS] + everywhere + ["--help", "--version"]))
    for path, command in _commands(COMMANDS):
        parent, _, name = path.rpartition(" ")
        paths.append(f'"{parent} {name}"')
        own = [name for each in command.arguments for name in each.names if name.startswith("-")]
        words.append(_case(path, [part.name for part in command.commands] + own + everywhere + ["--help"]))
        for each in command.arguments:
            if choices := each.settings.get("choices"):
                options = each.names if each.name.startswith("-") else (command.name,)
                values += [_case(f"{path} {option}", choices) for option in options]
    return _BASH.format(paths=" | ".join(paths), values="\n".join(values), words="\n".join(words))


def _commands(table: tuple[Command, ...], parent: str = "") -> Iterator[tuple[str, Command]]:
    """The commands by their path, such as `graph query`."""
    for command in table:
        path = f"{parent} {command.name}".strip()
        yield path, command
        yield from _commands(command.commands, path)


def _case(pattern: str, words: list[str] | tuple[str, ...]) -> str:
    return f'        "{pattern}") words="{" ".join(words)}" ;;'
