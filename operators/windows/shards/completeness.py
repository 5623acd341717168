"""Windows that omit results, or emit some twice, so that windows over them would count wrongly."""

from __future__ import annotations

from ....plan.completeness import LeftOut
from ..sessions import SessionWindows
from .plan import WindowPlan

__all__ = ["left_out_by_windows", "revises"]


def left_out_by_windows(plan: WindowPlan) -> LeftOut | None:
    """Return why another window cannot count these windows' results, or None if it can."""
    if plan.early:
        return LeftOut(
            f"{plan.output_text} gives a window several times, and another window would count each of them",
            'give this window and the one before it output="all": a revised window then replaces the one before; or '
            "leave early out",
        )
    if not plan.every:
        passes = {
            "lazy": "gives only the latest of a key's windows that close in one batch",
            "eager": "passes over the windows that start while a key is committed to another one",
        }
        return LeftOut(
            f"{plan.output_text} {passes[plan.emit]}, so another window's results would depend on the batches",
            'give the window before output="all", which gives every window once',
        )
    if plan.lateness_us:
        return LeftOut(
            "with allowed_lateness a window that is corrected is given again, and another window would count both",
            'give this window output="all": a corrected window then replaces the one before; or leave '
            "allowed_lateness out",
        )
    return None


def revises(plan: WindowPlan) -> bool:
    """Return whether all windows by time emit results, and some of them emit revised ones."""
    by_time = not plan.by_rows and not plan.by_number and not isinstance(plan.windows, SessionWindows)
    return plan.every and by_time and (plan.early or plan.lateness_us > 0)
