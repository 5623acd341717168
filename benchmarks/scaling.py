"""A picture of how the cost grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .shapes import pyplot

__all__ = ["plot_scaling"]


def plot_scaling(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot seconds over rows, and seconds over keys, with the straight line through the largest.

    Parameters
    ----------
    rows
        As a report gives them; those of ``steady state as … grow`` are used.
    path
        A PNG or SVG file.
    """
    plt = pyplot()

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    by_rows = sorted((row["size"], row["seconds"]) for row in rows if row["work"].endswith("as rows grow"))
    if by_rows:
        most, seconds = by_rows[-1]
        left.plot([0, most / 1e6], [0, seconds], color="0.75", linestyle="--", label="proportional to rows")
        left.plot([size / 1e6 for size, _ in by_rows], [taken for _, taken in by_rows], marker="o", label="measured")
    left.set(xlabel="million rows", ylabel="seconds", title="As rows grow", xlim=(0, None), ylim=(0, None))
    left.legend(frameon=False)
    by_keys = sorted((row["keys"], row["seconds"]) for row in rows if row["work"].endswith("as keys grow"))
    if by_keys:
        right.plot([keys for keys, _ in by_keys], [taken for _, taken in by_keys], marker="o")
    right.set(xlabel="keys", ylabel="seconds", title="As keys grow", xscale="log", ylim=(0, None))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"plotted: {path}")
