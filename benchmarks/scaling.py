"""Pictures of how the cost grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .shapes import pyplot

__all__ = ["plot_scaling", "plot_windows"]

Point = tuple[float, float]


def plot_scaling(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot seconds over rows, and seconds over keys, with the straight line through the largest.

    Parameters
    ----------
    rows
        As a report gives them; those of ``steady state as … grow`` are used.
    path
        A PNG or SVG file.
    """
    by_rows = sorted((row["size"], row["seconds"]) for row in rows if row["work"].endswith("as rows grow"))
    by_keys = sorted((row["keys"], row["seconds"]) for row in rows if row["work"].endswith("as keys grow"))
    _plot(by_rows, by_keys, ("keys", "As keys grow"), path)


def plot_windows(by_rows: Sequence[Point], by_overlap: Sequence[Point], path: Path) -> None:
    """Plot seconds over rows, with the straight line through the largest, and seconds over how many windows a row is
    in.

    Parameters
    ----------
    by_rows, by_overlap
        (rows, seconds) and (RANGE / SLIDE, seconds).
    path
        A PNG or SVG file.
    """
    _plot(sorted(by_rows), sorted(by_overlap), ("RANGE / SLIDE", "As windows overlap more"), path)


def _plot(by_rows: Sequence[Point], by_other: Sequence[Point], labels: tuple[str, str], path: Path) -> None:
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    if by_rows:
        most, seconds = by_rows[-1]
        left.plot([0, most / 1e6], [0, seconds], color="0.75", linestyle="--", label="proportional to rows")
        left.plot([size / 1e6 for size, _ in by_rows], [taken for _, taken in by_rows], marker="o", label="measured")
        left.legend(frameon=False)
    left.set(xlabel="million rows", ylabel="seconds", title="As rows grow", xlim=(0, None), ylim=(0, None))
    if by_other:
        right.plot([place for place, _ in by_other], [taken for _, taken in by_other], marker="o")
        right.set(xscale="log")
    right.set(xlabel=labels[0], ylabel="seconds", title=labels[1], ylim=(0, None))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"plotted: {path}")
