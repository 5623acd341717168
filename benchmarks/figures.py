"""The figures of the papers, shown again: ``python -m benchmarks.figures NAME [--quick] [--out FOLDER]``.

Each figure is simulated, printed, drawn and checked. The exit code is 1 if a shape is not that of the paper.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .adaptive_bound import figure_adaptive
from .bai import figure_7 as bai_7
from .bai import figure_8 as bai_8
from .bai_join import figure_join as bai_join
from .hammad import figure_5 as hammad_5
from .hammad import figure_6 as hammad_6
from .hammad import figure_7 as hammad_7
from .hammad import figure_8 as hammad_8
from .hammad import figure_9 as hammad_9
from .hammad import figure_10 as hammad_10
from .shapes import Figure
from .thesis import figure_6_10, figure_6_15, figure_6_19
from .thesis_disorder import figure_6_11, figure_6_12, figure_ais, figure_dns
from .thesis_flush import figure_8_7
from .thesis_joins import figure_7_6, figure_7_7
from .thesis_skew import figure_8_8, figure_8_9, figure_8_10, figure_8_11
from .tr620 import figure_5, figure_7, figure_9, figure_16, figure_17
from .tr620_theory import theory
from .tr620_windows import figure_12, figure_13, figure_13b, figure_14, window_memory

__all__ = ["FIGURES", "main"]

FIGURES: dict[str, Callable[[bool], Figure]] = {
    "tr620-5": figure_5,
    "tr620-7": figure_7,
    "tr620-9": figure_9,
    "tr620-12": figure_12,
    "tr620-13": figure_13,
    "tr620-13b": figure_13b,
    "tr620-14": figure_14,
    "tr620-16": figure_16,
    "tr620-17": figure_17,
    "tr620-window-memory": window_memory,
    "tr620-theory": theory,
    "thesis-6-10": figure_6_10,
    "thesis-6-11": figure_6_11,
    "thesis-6-12": figure_6_12,
    "thesis-6-15": figure_6_15,
    "thesis-6-19": figure_6_19,
    "thesis-7-6": figure_7_6,
    "thesis-7-7": figure_7_7,
    "thesis-8-7": figure_8_7,
    "thesis-8-8": figure_8_8,
    "thesis-8-9": figure_8_9,
    "thesis-8-10": figure_8_10,
    "thesis-8-11": figure_8_11,
    "slack-ais": figure_ais,
    "slack-dns": figure_dns,
    "adaptive": figure_adaptive,
    "bai-7": bai_7,
    "bai-8": bai_8,
    "bai-join": bai_join,
    "hammad-5": hammad_5,
    "hammad-6": hammad_6,
    "hammad-7": hammad_7,
    "hammad-8": hammad_8,
    "hammad-9": hammad_9,
    "hammad-10": hammad_10,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Make figures; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    parser.add_argument("name", nargs="*", help="make these, of --list, or all")
    parser.add_argument("--list", action="store_true", help="print the names, one on each line")
    parser.add_argument(
        "--quick", action="store_true", help="run shorter, with fewer seeds; write nothing without --out"
    )
    parser.add_argument("--out", type=Path, help="write NAME.svg to this folder [default: docs/figures]")
    parser.add_argument("--png", action="store_true", help="write NAME.png, too")
    given = parser.parse_args(argv)
    if given.list:
        print("\n".join(FIGURES))
        return 0
    names = list(FIGURES) if given.name == ["all"] else given.name
    unknown = [name for name in names if name not in FIGURES]
    if unknown or not names:
        parser.error(f"no figure {', '.join(unknown) or 'given'}; there are {', '.join(FIGURES)}, all")
    out = given.out or (None if given.quick else Path(__file__).parent.parent / "docs" / "figures")
    failed = False
    for name in names:
        figure = FIGURES[name](given.quick)
        if figure.skipped:
            print(f"\n{name}: skipped: {figure.skipped}")
            continue
        print(f"\n{name}: {figure.title}\n{figure.table()}")
        if out is not None and figure.panels:
            figure.draw(out / f"{name}.svg")
            if given.png:
                figure.draw(out / f"{name}.png")
        for problem in figure.differs:
            print(f"shape differs: {problem}")
        if not figure.differs:
            print("shape: as in the paper")
        failed |= bool(figure.differs)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
