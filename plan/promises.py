"""Checks that a stream has a low-watermark, without which no window closes and no ordered row is released."""

from __future__ import annotations

from collections.abc import Iterator

from ..conf.errors import OptionError
from ..core.pushdown.at_source import source_options
from .newest_nodes import WindowedGroups
from .nodes import Given, Intake, Node, Rows, Window

__all__ = ["check_promised"]


def check_promised(plan: Node, what: str, otherwise: str = "") -> None:
    """Refuse a step that waits for the low-watermark over rows without one; `otherwise` ends the hint.

    Rows without a time of their own (latent timestamps) are stamped on entry, not by a later step, which would stamp
    the rows of a replayed batch differently.
    """
    reasons = [why for each in _inputs(plan) if (why := _silent(each)) is not None]
    if reasons:
        raise OptionError(
            f"{what} over a source that promises nothing: {reasons[0]}",
            expected="a low-watermark, for it to go on by",
            hint="give the source `time` and a `progress`, or a DataFrame an event_time and a watermark; rows without "
            "a time of their own are stamped "
            "with their arrival by Watermark.arrival() (progress=heartbeat), which adds the column that the event time "
            "names" + otherwise,
        )


def _inputs(node: Node) -> Iterator[Node]:
    """Yield the inputs whose low-watermark reaches a step. Results of windows have a low-watermark of their own."""
    windows = isinstance(node, Window | WindowedGroups)
    if (isinstance(node, Window) and node.promises) or (isinstance(node, WindowedGroups) and node.ends):
        return
    if not node.inputs or windows:
        yield node
    for each in () if windows else node.inputs:
        yield from _inputs(each)


def _silent(node: Node) -> str | None:
    """Return why an input has no low-watermark; None if it has one, and for other steps."""
    if isinstance(node, WindowedGroups):
        return "windows of a table never become final"
    if isinstance(node, Window):
        return "windows of rows close with their last row, and their times are row numbers"
    if isinstance(node, Given | Intake):
        return None if node.promises else "Watermark.none(), or no event time"
    given = source_options(node.frame) if isinstance(node, Rows) else None
    if given is None:
        return None
    timed = "time" in given or given.get("connector", "").lower() == "latest"  # a latest table knows its own time
    if given.get("progress", "").lower() == "latent" or not timed:
        return "progress=latent, or no option `time`"
    off = given.get("punctuation", "").lower() in ("false", "off", "no", "0")
    return "punctuation=off" if off else None
