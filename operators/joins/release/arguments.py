"""The arguments for the order in which results leave a join."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from ....conf.errors import OptionError
from .choice import ALPHA, Release, ReleasePlan

__all__ = ["OutputOrder", "release_plan"]

OutputOrder = Literal["event_time"]
"""The order in which results leave: that of their times."""


def release_plan(
    output_order: Any,
    release: Any,
    *,
    output: str,
    cost: Any,
    alpha: Any,
    late_location: Any,
    window: float,
    unit_us: int | None,
) -> ReleasePlan | None:
    """Return the release of a join from arguments of ``UpdateStream.join``; None without an `output_order`.

    `window` is the distance over which a row looks back on the other side, in units of the time column. `unit_us` has
    the microseconds of one unit; None if unknown.
    """
    if output_order is None:
        given = {"release": release, "cost": cost, "alpha": alpha, "late_location": late_location}
        alone = [name for name, value in given.items() if value is not None]
        if alone:
            raise OptionError(
                f"{', '.join(alone)} in a join whose results leave in any order",
                expected="output_order='event_time' beside it",
                hint="ask for the order, or leave it out",
            )
        return None
    if output_order not in get_args(OutputOrder):
        raise OptionError(
            f"output_order={output_order!r}", expected="'event_time'", hint="leave it out if any order will do"
        )
    release = "filter" if release is None else release
    if release not in get_args(Release):
        raise OptionError(
            f"release={release!r}",
            expected="'filter', which holds results, 'sync', which orders rows, or 'adaptive', which chooses",
            hint="correct release",
        )
    if output != "all":
        raise OptionError(
            f"output={output!r} with output_order='event_time'",
            expected="output='all': the newest pair of a batch leaves at once, and one that is held is not the newest",
            hint="leave output_order out; the table keeps the newest pair in any order",
        )
    if release != "adaptive" and (cost is not None or alpha is not None):
        raise OptionError(
            f"cost and alpha with release={release!r}",
            expected="release='adaptive', which chooses by them",
            hint="leave them out",
        )
    if release == "adaptive" and unit_us is None:
        raise OptionError(
            "release='adaptive', and the time column holds numbers",
            expected="a time in which the length of the window is known, to say how many rows a row is compared with",
            hint="say what the numbers count: join(…, time_format='epoch_ms'); or choose 'sync' or 'filter'",
        )
    threshold = ALPHA if alpha is None else alpha
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold < 1:
        raise OptionError(
            f"alpha={alpha!r}",
            expected="a number from 0 to below 1: the share of the time from which on results are held",
            hint="0.3 takes a quarter or more off the response time",
        )
    if cost is not None and (isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 < cost < math.inf):
        raise OptionError(
            f"cost={cost!r}",
            expected="seconds, more than 0: what it takes to compare two rows, such as 5e-8",
            hint="leave it out: it is measured",
        )
    seconds = None if unit_us is None else window * unit_us / 1e6
    return ReleasePlan(release, None if cost is None else float(cost), float(threshold), seconds)
