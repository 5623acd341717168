"""The watermark of an ingested DataFrame, and the names of its arguments in earlier releases."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, TypedDict

from ...conf.deprecation import refuse_unknown, renamed_argument, warn_deprecated
from ...conf.errors import OptionError
from ...conf.units import parse_duration_us
from ...core.watermark.choice import Watermark, check_watermark
from ...core.watermark.policies import Policy, PolicyName

__all__ = ["EarlierNames", "chosen_earlier", "policy_of"]

_FUNCTION = "UpdateStream.from_dataframe"


class EarlierNames(TypedDict, total=False):
    """Arguments of :meth:`~upstream.UpdateStream.from_dataframe` that have other names now."""

    time: str | None
    progress: PolicyName | None
    delay: str
    target_late: float
    displacement: int
    max_jump: str
    confirmations: int


_PARTS = {
    "delay": "delay",
    "target_late": "late",
    "displacement": "rows",
    "max_jump": "max_jump",
    "confirmations": "confirmations",
}
"""Arguments that are fields of a watermark now."""

_SPELT: dict[str, str] = {
    "ordered": "ordered()",
    "bounded": "bounded(delay)",
    "adaptive": "adaptive(late=target_late, first_delay=delay)",
    "displaced": "displaced(displacement)",
    "embedded": "embedded()",
    "heartbeat": "arrival()",
    "latent": "none()",
}


def chosen_earlier(
    event_time: str | None, watermark: Watermark | None, given: EarlierNames
) -> tuple[str | None, Watermark | None]:
    """Return the event time's column and the watermark, given by new or by earlier names but not by both."""
    others: MutableMapping[str, Any] = {**given}
    event_time = renamed_argument(_FUNCTION, others, "time", "event_time", event_time, level=2)
    old = [name for name in ("progress", *_PARTS) if name in others]
    refuse_unknown(_FUNCTION, [name for name in others if name not in old])
    if not old:
        return event_time, watermark
    if watermark is not None:
        raise OptionError(
            f"watermark is given beside {', '.join(old)}", expected="watermark", hint=f"leave {', '.join(old)} out"
        )
    policy: Any = others.pop("progress", None) or ("bounded" if event_time else "latent")
    made = Watermark(policy, **{_PARTS[name]: value for name, value in others.items()})
    guarded = [f"{name}={name}" for name in ("max_jump", "confirmations") if name in old]
    spelt = f"Watermark.{_SPELT.get(policy, policy)}" + (f".guarded({', '.join(guarded)})" if guarded else "")
    warn_deprecated(f"{_FUNCTION}({', '.join(f'{name}=…' for name in old)})", f"watermark={spelt}", level=2)
    return event_time, made


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
