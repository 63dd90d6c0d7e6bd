"""What a table of commands is made of. These modules import next to nothing: every command loads them."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost more than all of the tables
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Argument:
    """One argument: its names, and the settings that `argparse.ArgumentParser.add_argument` takes."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings

    @property
    def label(self) -> str:
        """The argument as a person types it: `--limit N`, `FILE`, `--mode merge|append`."""
        value = ""
        if "action" not in self.settings or self.settings["action"] == "append":
            choices = self.settings.get("choices")
            value = "|".join(choices) if choices else self.settings["metavar"]
        if not self.names[0].startswith("-"):
            return f"[{value} ...]" if self.settings.get("nargs") == "*" else str(value)
        return " ".join(filter(None, (", ".join(self.names), value)))


class Group:
    """Arguments under a title of their own in `--help`, or, without a title, of which at most one may be given."""

    def __init__(self, *arguments: Argument, title: str = "", description: str = "") -> None:
        self.arguments = arguments
        self.title = title
        self.description = description


class Command:
    """One command, or a group of commands.

    `handler` is `module:function`; the module is imported when the command is chosen, and the function takes the
    parsed options and returns the exit code. `epilog` is printed below the arguments. A command with a handler has
    `--json` unless `json` is False.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        handler: str = "",
        *arguments: Argument | Group,
        commands: tuple[Command, ...] = (),
        epilog: str = "",
        json: bool = True,
    ) -> None:
        self.name = name
        self.summary = summary
        self.handler = handler
        self.entries = (JSON, *arguments) if handler and json else arguments
        self.commands = commands
        self.epilog = epilog

    @property
    def arguments(self) -> Iterator[Argument]:
        """All arguments in the order of the help, those of groups too."""
        for entry in self.entries:
            yield from entry.arguments if isinstance(entry, Group) else (entry,)


JSON = Argument("--json", action="store_true", help="print one JSON document")
