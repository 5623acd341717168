"""The pictures of docs/windows.md, drawn from the classes that they explain: ``python -m benchmarks.window_pictures
[--out FOLDER]``.

Dots are rows, bars are windows. One row is marked, and so are the windows that `wids` gives it; where the bars begin
and end is what `extent` says.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from upstream.operators.windows.emission import ranks
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows, Windows
from upstream.operators.windows.parse import window_by_time

from .shapes import pyplot

__all__ = ["PICTURES", "Bar", "Picture", "main"]

Int64s = npt.NDArray[np.int64]

_ROWS = np.array([1, 3, 4, 9, 12, 13, 17, 22, 24, 25, 31, 33, 38, 40, 44, 47])
_HOUR = 3_600_000_000


@dataclasses.dataclass(frozen=True)
class Bar:
    """A window from `low` to `high` on the axis, in a line of its own."""

    name: str
    low: float
    high: float
    marked: bool = False


@dataclasses.dataclass(frozen=True)
class Picture:
    """Rows on an axis, and windows above them.

    Attributes
    ----------
    rows : sequence of (float, bool)
        Where each row is, and whether it is marked.
    lines : sequence of float
        Thin lines, such as between panes.
    notes : dict
        Text below places on the axis; empty for plain numbers.
    """

    xlabel: str
    bars: Sequence[Bar]
    rows: Sequence[tuple[float, bool]]
    lines: Sequence[float] = ()
    notes: dict[float, str] = dataclasses.field(default_factory=dict)


def _picture(windows: Windows, ids: Int64s, x: Int64s, marked: int, **more: Sequence[float]) -> Picture:
    """Draw windows over the very values of the axis."""
    low, high = windows.start_and_end(ids)
    first, last = (int(end) for end in windows.wids(marked))
    bars = [
        Bar(f"{w}", max(float(a), float(x[0]) - 5), float(b), first <= w <= last)
        for w, a, b in zip(ids, low, high, strict=True)
    ]
    return Picture("x", bars, [(float(each), each == marked) for each in x], **more)


def tumbling() -> Picture:
    """Draw windows with RANGE = SLIDE."""
    return _picture(SlidingWindows(range=10, slide=10), np.arange(5), _ROWS, 24)


def sliding() -> Picture:
    """Draw windows with RANGE > SLIDE, and no multiple of it."""
    return _picture(SlidingWindows(range=25, slide=10), np.arange(6), _ROWS, 24)


def gaps() -> Picture:
    """Draw windows with RANGE < SLIDE."""
    return _picture(SlidingWindows(range=6, slide=10), np.arange(5), _ROWS, 24)


def panes() -> Picture:
    """Draw the example of the thesis, §6.2.1: RANGE 9, SLIDE 6, panes of 3."""
    windows = SlidingWindows(range=9, slide=6)
    edges = windows.panes().extent(np.arange(-1, 16))[0]
    return _picture(windows, np.arange(8), _ROWS, 25, lines=[float(edge) for edge in edges])


def landmark() -> Picture:
    """Draw windows from the beginning of the stream."""
    return _picture(LandmarkWindows(slide=10), np.arange(5), _ROWS, 24)


def by_tuple() -> Picture:
    """Draw windows of RANGE 12, of which every third row opens one."""
    windows = SlideByTupleWindows(range=12, every=3)
    return _picture(windows, windows.windows(_ROWS, np.arange(len(_ROWS))), _ROWS, 24)


def by_rows() -> Picture:
    """Draw windows of RANGE 4 rows, SLIDE 2 rows, at the times of the rows."""
    windows = SlidingWindows(range=4, slide=2, attribute="row number")
    return Picture("time", _bars_of_rows(windows, _ROWS, 8), [(float(each), i == 8) for i, each in enumerate(_ROWS)])


def partitioned() -> Picture:
    """Draw the same rows in two partitions, each counted by itself."""
    codes = np.arange(len(_ROWS)) % 3 % 2
    rank, counted = ranks(codes, np.zeros(2, dtype=np.int64))
    windows = SlidingWindows(range=4, slide=4, attribute="rank")
    bars: list[Bar] = []
    for code in range(len(counted)):
        own = _ROWS[codes == code]
        marked = int(rank[8]) if codes[8] == code else None
        bars += [
            dataclasses.replace(bar, name=f"{'ab'[code]}, {bar.name}") for bar in _bars_of_rows(windows, own, marked)
        ]
    notes = {float(each): "ab"[code] for each, code in zip(_ROWS, codes, strict=True)}
    return Picture("partition", bars, [(float(each), i == 8) for i, each in enumerate(_ROWS)], notes=notes)


def calendar() -> Picture:
    """Draw days of Paris, one of which has 23 hours."""
    windows = window_by_time("1 day", zone="Europe/Paris")
    start = int(dt.datetime(2024, 3, 30, tzinfo=dt.timezone.utc).timestamp()) * 1_000_000
    x = start + np.array([1, 7, 15, 22, 25, 33, 40, 46, 50, 61, 66]) * _HOUR
    first = int(windows.wids(x[0])[0])
    low, high = windows.extent(np.arange(first, first + 3))
    marked = int(windows.wids(x[5])[0])
    bars = [
        Bar(f"{w}: {(b - a) / _HOUR:g} h", (a - start) / _HOUR, (b - start) / _HOUR, w == marked)
        for w, a, b in zip(range(first, first + 3), low, high, strict=True)
    ]
    notes = {0.0: "30 March", 24.0: "31 March", 48.0: "1 April"}
    rows = [((each - start) / _HOUR, i == 5) for i, each in enumerate(x)]
    return Picture("UTC", bars, rows, notes=notes)


def _bars_of_rows(windows: SlidingWindows, times: Int64s, marked: int | None) -> list[Bar]:
    """Return complete windows over row numbers, from the time of their first to that of their last row."""
    ids = np.arange(int(windows.last_complete(len(times))) + 1)
    first, last = (int(end) for end in windows.wids(marked)) if marked is not None else (0, -1)
    bars: list[Bar] = []
    for w, low, high in zip(ids, *windows.extent(ids), strict=True):
        inside = times[max(int(low), 0) : int(high)]
        bars.append(Bar(f"{w}", float(inside[0]) - 0.3, float(inside[-1]) + 0.3, first <= w <= last))
    return bars


PICTURES = {
    "windows-tumbling": tumbling,
    "windows-sliding": sliding,
    "windows-gaps": gaps,
    "windows-panes": panes,
    "windows-rows": by_rows,
    "windows-partitioned": partitioned,
    "windows-landmark": landmark,
    "windows-by-tuple": by_tuple,
    "windows-calendar": calendar,
}


def draw(picture: Picture, path: Path) -> None:
    """Write an SVG: the same bytes for the same picture."""
    plt = pyplot()

    n = len(picture.bars)
    figure, axis = plt.subplots(figsize=(6, 0.7 + 0.2 * n), layout="constrained")
    for line in picture.lines:
        axis.axvline(line, color="0.85", linewidth=0.8, zorder=0)
    axis.barh(
        range(1, n + 1),
        [bar.high - bar.low for bar in picture.bars],
        left=[bar.low for bar in picture.bars],
        height=0.55,
        color=["C1" if bar.marked else "C0" for bar in picture.bars],
        alpha=0.75,
    )
    places = [x for x, _ in picture.rows]
    axis.scatter(places, [0] * len(places), s=14, color=["C1" if marked else "0.3" for _, marked in picture.rows])
    axis.set_yticks(range(1, n + 1), [bar.name for bar in picture.bars], fontsize=8)
    axis.set_ylim(-0.6, n + 0.6)
    axis.margins(x=0.02)
    axis.set_ylabel("window_id", fontsize=8)
    axis.set_xlabel(picture.xlabel, fontsize=8)
    if picture.notes:
        axis.set_xticks(list(picture.notes), list(picture.notes.values()))
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right", "left"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    print(f"plotted: {path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw all pictures; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.window_pictures", description=__doc__)
    folder = Path(__file__).parent.parent / "docs" / "figures"
    parser.add_argument(
        "--out", type=Path, default=folder, help="write the pictures to this folder [default: docs/figures]"
    )
    given = parser.parse_args(arguments)
    for name, picture in PICTURES.items():
        draw(picture(), given.out / f"{name}.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
