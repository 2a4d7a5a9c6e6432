"""What is shown while a run goes on: one line for the whole, and what each worker does.

Everything goes to stderr, and only when that is a terminal; results and warnings never depend on being shown.
"""

from __future__ import annotations

import sys
import threading
import time
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_MOST_WORKERS_SHOWN = 12
# What is shown now, for those who work deep inside a stage: see `tell`.
_current: ContextVar[Progress | None] = ContextVar("_current", default=None)


def tell(what: str, done: int, total: int) -> None:
    """Say how far a long piece of work is, wherever that is shown; nowhere if nobody looks.

    Examples
    --------
    >>> tell("pairs of shards", 3, 99)
    """
    shown = _current.get()
    if shown is not None:
        shown.worker(what, f"{done:,} of {total:,}" if done < total else "")


def is_shown() -> bool:
    """Whether some stage's progress is being kept already."""
    return _current.get() is not None


class Progress:
    """Show progress on a terminal, or nothing at all.

    Parameters
    ----------
    show : bool
        False never shows anything.
    console : rich.console.Console, optional
        Where to show; stderr when not given.
    patience : float
        Seconds of work before the first line is shown: what is done by then leaves no trace.

    Examples
    --------
    >>> with Progress(False) as progress:
    ...     progress.stage("sample", 2)
    ...     progress.worker("1", "shard 0")
    ...     progress.advance()
    """

    def __init__(self, show: bool = True, *, console: Console | None = None, patience: float = 0.0) -> None:
        self._show = show
        self._console = console
        self._patience = patience
        self._begun = 0.0
        self._display: _Display | None = None
        self._stage: tuple[str, int | None] | None = None
        self._token: Token[Progress | None] | None = None

    def __enter__(self) -> Progress:
        self._token = _current.set(self)
        self._begun = time.monotonic()
        if self._patience == 0.0:
            self._start()
        return self

    def _start(self) -> None:
        # Without a terminal Rich is not even imported.
        if self._show and (self._console is not None or _is_terminal(sys.stderr)):
            display = _Display(self._console)
            if display.console.is_terminal:
                self._display = display
                display.live.start(refresh=True)
        self._show = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
        if self._display is not None:
            display, self._display = self._display, None
            display.end(completed=error is None)

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage of `total` steps, or of nobody knows how many."""
        self._stage = (name, total)
        if self._display is not None:
            self._display.stage(name, total)

    def advance(self, n: int = 1) -> None:
        """Say that `n` more steps are done."""
        if self._display is not None:
            self._display.advance(n)

    def worker(self, worker: str, text: str) -> None:
        """Say what a worker does; an empty text when it does nothing."""
        if self._show and self._display is None and time.monotonic() - self._begun > self._patience:
            self._start()
            if self._stage is not None:
                self.stage(*self._stage)
        if self._display is not None:
            self._display.worker(worker, text)

    def note(self, text: str) -> None:
        """Leave a line above the display."""
        if self._display is not None:
            self._display.line(text, "dim")

    def warn(self, text: str) -> None:
        """Leave a line that stands out. It must be in the result too: this may not be shown."""
        if self._display is not None:
            self._display.line(f"Warning: {text}", "bold yellow")


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # no stderr at all, or a closed one
        return False


class _Display:
    """The lines on the terminal. Names come from data: they are shown as they are, never read as markup."""

    def __init__(self, console: Console | None) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bars

        self.console = console or RichConsole(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left:", style="dim"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._bar: Any = None
        self._name = ""
        self._begun = 0.0
        self._workers: dict[str, str] = {}
        self._lock = threading.Lock()
        self.live = Live(
            get_renderable=self._lines,
            console=self.console,
            refresh_per_second=4,
            transient=True,
            # What is printed for a file or a pipe must reach it.
            redirect_stdout=_is_terminal(sys.stdout),
        )

    def stage(self, name: str, total: int | None) -> None:
        self._end_stage(completed=True)
        with self._lock:
            self._workers.clear()
            self._name, self._begun = name, time.monotonic()
            self._bar = self._bars.add_task(name, total=total)

    def advance(self, n: int) -> None:
        if self._bar is not None:
            self._bars.advance(self._bar, n)

    def worker(self, worker: str, text: str) -> None:
        with self._lock:
            if text:
                self._workers[worker] = text
            else:
                self._workers.pop(worker, None)

    def line(self, text: str, style: str) -> None:
        from rich.text import Text

        self.console.print(Text(text, style=style))

    def end(self, *, completed: bool) -> None:
        try:
            self._end_stage(completed=completed)
        finally:
            self.live.stop()

    def _end_stage(self, *, completed: bool) -> None:
        if self._bar is None:
            return
        task = self._bars.tasks[0]
        steps = "" if task.total is None else f" {task.completed:.0f}/{task.total:.0f}"
        ending = "" if completed else ", interrupted"
        self._bars.remove_task(self._bar)
        self._bar = None
        self.line(f"{self._name}{steps} in {time.monotonic() - self._begun:.1f} s{ending}", "dim")

    def _lines(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        with self._lock:
            workers = sorted(self._workers.items())
        shown = workers[:_MOST_WORKERS_SHOWN]
        width = max((len(worker) for worker, _ in shown), default=0)
        lines = [
            Text(f"  {worker:<{width}}  {text}", no_wrap=True, overflow="ellipsis") for worker, text in shown
        ]
        if len(workers) > len(shown):
            lines.append(Text(f"  and {len(workers) - len(shown)} more workers", style="dim"))
        return Group(self._bars.get_renderable(), *lines)
