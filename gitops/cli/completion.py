"""`gitops completion` and `gitops manual`: generate shell scripts and a manual page from the command table."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from gitops import __version__
from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import Argument, Command
from gitops.cli.commands.cluster import HELP
from gitops.cli.main import EVERYWHERE
from gitops.cli.shared import OK, say

# `help` is followed by the same words as the command line without it.
_PATHS = tuple(each for each in COMMANDS if each is not HELP)
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_BASH = """\
_gitops() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= word
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}"; do
        case "$command $word" in
            {paths}) command="${{command:+$command }}$word" ;;
        esac
    done
    local words=
    case "$command $before" in
{values}
        {files}) ;;
        *) case "$command" in
{words}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _gitops gitops
"""
_FISH = """\
function __gitops_at
    set -l command
    for word in (commandline -opc)[2..]
        contains -- "$command $word" {paths}
        and set command (string trim -- "$command $word")
    end
    test "$command" = "$argv"
end
{rules}
"""


def completion(options: argparse.Namespace) -> int:
    """`gitops completion`. The scripts complete file names when nothing else matches."""
    say({"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[options.shell]())
    return OK


def zsh_script() -> str:
    """Return the zsh script: the bash script with a compatibility layer."""
    return _ZSH + bash_script()


def bash_script() -> str:
    """Return the bash script. It completes file names after options that accept any value."""
    everywhere = [name for each in EVERYWHERE for name in each.names]
    paths, values, files, words = [], [], ['" --as"'], []
    words.append(_case("", [command.name for command in COMMANDS] + everywhere + ["--help", "--version"]))
    for path, command in _commands(_PATHS):
        parent, _, name = path.rpartition(" ")
        paths.append(f'"{parent} {name}"')
        own = [name for each in command.arguments for name in each.names if name.startswith("-")]
        words.append(_case(path, [part.name for part in command.commands] + own + everywhere + ["--help"]))
        for each in (*command.arguments, *EVERYWHERE):
            options = each.names if each.name.startswith("-") else (command.name,)
            if choices := each.settings.get("choices"):
                values += [_case(f"{path} {option}", choices) for option in options]
            elif "action" not in each.settings and each.name.startswith("-"):
                files += [f'"{path} {option}"' for option in options]
    cases = {"values": "\n".join(values), "words": "\n".join(words)}
    return _BASH.format(paths=" | ".join(paths), files=" | ".join(files), **cases)


def fish_script() -> str:
    """Return the fish script, which shows a description for each completion.

    Source: https://fishshell.com/docs/current/completions.html.
    """
    paths, rules = [], [_offers("", COMMANDS), _options("", EVERYWHERE)]
    for path, command in _commands(_PATHS):
        parent, _, name = path.rpartition(" ")
        paths.append(_quoted(f"{parent} {name}"))
        rules += [_offers(path, command.commands), _options(path, [*command.arguments, *EVERYWHERE])]
    return _FISH.format(paths=" ".join(paths), rules="\n".join(line for lines in rules for line in lines))


def _offers(path: str, commands: Iterable[Command]) -> list[str]:
    """Return the commands below a path, where file names would make no sense."""
    at = _quoted(f"__gitops_at {path}")
    return [f"complete -c gitops -n {at} -f -a {each.name} -d {_quoted(each.summary)}" for each in commands]


def _options(path: str, arguments: Iterable[Argument]) -> list[str]:
    lines = []
    for each in arguments:
        choices = each.settings.get("choices", ())
        words = f" -a {_quoted(' '.join(choices))}" if choices else ""
        if each.name.startswith("-"):
            names = "".join(f" -{'l' if n.startswith('--') else 's'} {n.lstrip('-')}" for n in each.names)
            value = "" if "action" in each.settings else " -x" if choices else " -r"
        elif choices:
            names, value = "", " -f"
        else:
            continue
        at = _quoted(f"__gitops_at {path}")
        lines.append(f"complete -c gitops -n {at}{names}{value}{words} -d {_quoted(each.meaning)}")
    return lines


def _quoted(text: str) -> str:
    """Quote a text as one fish word."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _commands(table: tuple[Command, ...], parent: str = "") -> Iterator[tuple[str, Command]]:
    """Yield the commands by their path, such as `graph query`."""
    for command in table:
        path = f"{parent} {command.name}".strip()
        yield path, command
        yield from _commands(command.commands, path)


def _case(pattern: str, words: list[str] | tuple[str, ...]) -> str:
    return f'        "{pattern}") words="{" ".join(words)}" ;;'


# -- `gitops manual`: the manual page of all commands, in the man macros of roff: man(7) -------------------------------


def manual(_options: argparse.Namespace) -> int:
    """`gitops manual`."""
    lines = [f'.TH GITOPS 1 "" "gitops {__version__}" "Commands"']
    lines.append(".SH NAME\ngitops \\- plan, approve and apply clusters of graph databases from git")
    lines.append(".SH SYNOPSIS\n.B gitops\n.I COMMAND\n.SH OPTIONS OF EVERY COMMAND")
    lines += [line for each in EVERYWHERE for line in _entry(each.label, each.meaning)]
    lines += [".SH COMMANDS", *_manual_entries(COMMANDS, "gitops")]
    lines.append(".SH EXIT STATUS\n0 success, also with warnings; 1 a problem with severity error; 2 wrong usage")
    say("\n".join(lines))
    return OK


def _manual_entries(table: Iterable[Command], parent: str) -> Iterator[str]:
    for command in table:
        yield f".SS {_roff(f'{parent} {command.name}')}"
        yield _roff(command.summary)
        if command.epilog:
            yield f".PP\n{_roff(command.epilog)}"
        for entry in command.entries:
            if isinstance(entry, Argument):
                yield from _entry(entry.label, entry.meaning)
                continue
            if entry.title:
                yield f".PP\n{_roff(f'{entry.title}: {entry.description}')}"
            for each in entry.arguments:
                yield from _entry(each.label, each.meaning)
        yield from _manual_entries(command.commands, f"{parent} {command.name}")


def _entry(label: str, meaning: str) -> Iterator[str]:
    yield f".TP\n.B {_roff(label)}"
    yield _roff(meaning)


def _roff(text: str) -> str:
    """Return text on one line, escaped for roff. Control characters have a meaning only at the start of a line."""
    return f"\\&{text}".replace("\\", "\\e").replace("\\e&", "\\&", 1).replace("-", "\\-").replace("'", "\\(aq")
