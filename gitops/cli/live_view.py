"""A live view of a run on a terminal: running nodes, waiting nodes with their locks, and totals.

The view is removed when the run ends.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gitops.cluster.model.plan import RunEvent
from gitops.render.progress import RunProgress, RunView
from gitops.repository.wiring.system import SystemClock

_REDRAWN = 8  # times per second
_BAR = 24


class LiveView:
    """Observer that draws running applies. Lines about failures and interrupts stay on the terminal.

    With `all_lines`, the lines about all changes remain too.
    """

    def __init__(self, stream: TextIO, *, colour: bool, all_lines: bool) -> None:
        """Create the view. It draws nothing until a run begins. `stream` is a terminal."""
        self._console = Console(
            file=stream, force_terminal=True, no_color=not colour, highlight=False, markup=False, emoji=False
        )
        self._all_lines, self._clock = all_lines, SystemClock()
        self._live: Live | None = None

    def __call__(self, event: RunEvent) -> None:
        """Show the next event. An apply continues even if the terminal is closed."""
        with suppress(OSError):
            if event.type == "apply_started":
                self._progress = RunProgress(event)
                self._view = self._progress.view()
                self._live = Live(
                    console=self._console,
                    get_renderable=self._render,
                    refresh_per_second=_REDRAWN,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._live.start()
                return
            line = self._progress.take(event)
            self._view = self._progress.view()
            if event.type == "apply_finished":
                self.close()
            good = event.type in ("node_finished", "apply_finished")
            if line is not None and (self._all_lines or not good):
                self._console.print(Text(line, style="" if good else "red"), soft_wrap=True)

    def close(self) -> None:
        """Remove the view and restore the cursor."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        """Return the current view; called by the thread that redraws it."""
        view: RunView = self._view
        first, *rest = view.lines(self._clock.now())
        done = "red" if view.ended["failed"] else "green"
        bar = ProgressBar(
            total=max(1, view.changes), completed=sum(view.ended.values()), width=_BAR, complete_style=done
        )
        head = Table.grid(padding=(0, 1))
        head.add_row(bar, Text(first, style="bold", no_wrap=True, overflow="ellipsis"))
        return Group(head, *(Text(line, no_wrap=True, overflow="ellipsis") for line in rest))
