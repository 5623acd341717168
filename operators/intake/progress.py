"""The progress policy of a DataFrame's input partitions."""

from __future__ import annotations

from ...conf.errors import OptionError
from ...conf.units import parse_duration_us
from ...core.watermark.choice import Watermark, check_watermark
from ...core.watermark.policies import Policy

__all__ = ["policy_of"]


def policy_of(watermark: Watermark | None, event_time: str | None) -> Policy:
    """Return a watermark's policy. The default is ``bounded`` by ten minutes, or ``latent`` without an event time."""
    chosen = check_watermark(watermark) or Watermark("bounded" if event_time else "latent")
    name = chosen.policy
    if name == "promised":
        raise OptionError(
            "a watermark of policy 'promised' for a DataFrame, which says nothing besides its rows",
            expected="what one of Watermark's methods makes",
        )
    if name != "latent" and event_time is None:
        raise OptionError(
            f"a watermark of policy {name!r} without an event time",
            expected="the column of the event time",
            hint="name it: event_time=…; with Watermark.arrival(), the column to add, in which rows are stamped on "
            "entry",
        )
    return Policy(
        name,
        parse_duration_us(chosen.delay or "10 minutes"),
        1000 if chosen.rows is None else chosen.rows,
        parse_duration_us(chosen.max_jump or "1 hour"),
        5 if chosen.confirmations is None else chosen.confirmations,
        0.001 if chosen.late is None else chosen.late,
    )
