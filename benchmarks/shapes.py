"""A figure: curves, how they are drawn and printed, and in what its shape differs from the paper's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .simulator import Estimate

__all__ = ["Curve", "Figure", "Panel", "pyplot"]


_MOST_ACROSS = 4


def pyplot() -> Any:
    """Return Matplotlib without a screen, with output that depends on the numbers alone."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "upstream"
    mpl.rcParams["svg.fonttype"] = "none"  # text as text: small files, and readable to machines
    import matplotlib.pyplot as plt

    return plt


@dataclasses.dataclass(frozen=True)
class Curve:
    """One line of a panel."""

    name: str
    x: Sequence[float]
    y: Sequence[Estimate]

    @property
    def means(self) -> list[float]:
        """The curve without its intervals."""
        return [each.mean for each in self.y]


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    xlabel: str
    ylabel: str
    curves: Sequence[Curve]
    log: bool = False
    log_x: bool = False


@dataclasses.dataclass(frozen=True)
class Figure:
    """Panels, remarks to print below them, what is not as in the paper; or why there is none."""

    title: str
    panels: Sequence[Panel]
    differs: Sequence[str]
    remarks: Sequence[str] = ()
    skipped: str = ""

    def table(self) -> str:
        """Return all numbers, a line per point on the x axis."""
        lines: list[str] = []
        for panel in self.panels:
            lines.append(f"{panel.title}: {panel.ylabel}")
            if any(list(curve.x) != list(panel.curves[0].x) for curve in panel.curves):
                for curve in panel.curves:
                    points = [f"{each.mean:.4g} at {x:.4g}" for x, each in zip(curve.x, curve.y, strict=True)]
                    lines.append(f"{curve.name:>20}: " + ", ".join(points))
                continue
            lines.append("  ".join([f"{panel.xlabel:>24}", *(f"{curve.name:>20}" for curve in panel.curves)]))
            for i, x in enumerate(panel.curves[0].x):
                lines.append("  ".join([f"{x:24g}", *(f"{curve.y[i]!s:>20}" for curve in panel.curves)]))
        return "\n".join([*lines, *self.remarks])

    def draw(self, path: Path) -> None:
        """Write an SVG (the same bytes for the same numbers) or a PNG."""
        plt = pyplot()
        n = len(self.panels)
        down = 1 if n <= _MOST_ACROSS else 2
        across = -(-n // down)
        size = (0.6 + 4.2 * across, 3.6 * down)
        figure, axes = plt.subplots(down, across, figsize=size, layout="constrained", squeeze=False)
        for panel, axis in zip(self.panels, axes.flat, strict=True):
            for curve, marker in zip(panel.curves, "os^dv<>ph*", strict=False):
                error = [each.half if each.half < float("inf") else 0.0 for each in curve.y]
                axis.errorbar(
                    curve.x, curve.means, yerr=error, marker=marker, markersize=4, capsize=2, label=curve.name
                )
            axis.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
            if panel.log:
                axis.set_yscale("log")
            else:
                axis.set_ylim(bottom=0)
            if panel.log_x:
                axis.set_xscale("log")
            axis.spines[["top", "right"]].set_visible(False)
            if len(panel.curves) > 1:
                axis.legend(frameon=False, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=120, metadata=plain)
        plt.close(figure)
        print(f"plotted: {path}")
