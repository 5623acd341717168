"""One line in a terminal about work that takes seconds: its name, how far it is, and since when it runs."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

T = TypeVar("T")


class ProgressLine:
    """The line of a block of code; without a terminal it shows nothing."""

    def __init__(self, bar: Progress | None = None) -> None:
        self._bar = bar
        self._task: TaskID | None = None if bar is None else bar.add_task("", total=None, count="")
        self.text = ""

    def show(self, text: str) -> None:
        """Replace the text."""
        self.text = text
        self._update(text, "")

    def count(self, done: int, total: int, what: str) -> None:
        """Show how much of the work is done."""
        self._update(self.text, f"{done:,} of {total:,} {what}")

    def _update(self, text: str, count: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text, count=count)


# The line that a terminal shows now. Work within its block shares it, since two would overwrite each other.
_shown: ProgressLine | None = None


@contextmanager
def progress(text: str, console: Console | None = None) -> Generator[ProgressLine]:
    """Show a line while a block runs, if standard error is a terminal; a block within it changes the text."""
    global _shown  # noqa: PLW0603 there is one terminal
    if _shown is not None:
        before = _shown.text
        _shown.show(text)
        try:
            yield _shown
        finally:
            _shown.show(before)
        return
    if not (sys.stderr.isatty() if console is None else console.is_terminal):
        yield ProgressLine()
        return
    from rich.console import Console as Terminal
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TextColumn("{task.fields[count]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console or Terminal(stderr=True), transient=True) as bar:
        _shown = ProgressLine(bar)
        _shown.show(text)
        try:
            yield _shown
        finally:
            _shown = None


def tracked(things: Collection[T], what: str) -> Iterator[T]:
    """Iterate over things, and show in the line of the block, if there is one, how many are done."""
    for number, each in enumerate(things):
        if _shown is not None:
            _shown.count(number, len(things), what)
        yield each
