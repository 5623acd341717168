"""Lanes: rows that readers of newest rows had in earlier batches, and readers of every row have not had yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.feedback.lanes import LANE_FIGURES, StreamLanes
from .connectors.contract import Range, joined

Offset = dict[str, Any]

Intake = Mapping[str, Any]
"""What one batch or several read of a source: `ranges`, the `punctuation` that follows them, and its clock `now_us`.

A range may have a member `entered`, the least stamp of its rows.
"""

_ONCE = 2
"""A lag costs a second read of its rows, so a batch first grows to so many budgets."""
_MOST_RANGES = 4096
"""Beyond so many ranges, no more is read ahead, so that an offset stays below about a megabyte."""
_INTAKES, _RANGES = 2, 8
"""Neighbours are put together up to these parts of a budget."""


def is_held_back(start: Offset) -> bool:
    """Return whether readers of every row lag so far that the source reads no faster than they do."""
    return sum(len(each["ranges"]) for each in start.get("owed", ())) > _MOST_RANGES


def with_lanes(start: Offset, end: Offset, stream: str, lanes: StreamLanes | None, *, joins: bool) -> Offset:
    """Return the end of a batch that also gives readers of every row what they are owed, within the budget.

    `end` is the end by what is new, or `start` itself if nothing is. Readers of newest rows get all that is new. While
    nothing is owed and the new rows fit, the others get them in the same tasks. Else the new rows follow what is owed,
    and the others get the oldest of that. Punctuation goes with the last row of its intake, never earlier. Without
    `lanes`, nothing stays owed. `joins` allows for joining ranges.
    """
    owed: list[Intake] = list(start.get("owed", ()))
    if end is start:
        if not owed:
            return start
        end = {name: value for name, value in start.items() if name not in _OF_A_BATCH}
        end |= {"batch": start["batch"] + 1, "first_seq": start["seq"], "ranges": [], "tasks": [], "punctuation": {}}
    new = intake_of(end)
    size = span_of(new)
    budget = None if lanes is None else lanes.budget
    lags = lanes is not None and lanes.newest and lanes.every and budget is not None and size > _ONCE * budget
    figures = {"stream": stream, "budget": budget, "newest": size, "every": size, "owed": 0, "since_us": None}
    if not owed and not lags:
        return {**end, LANE_FIGURES: figures}
    given, left = _taken(_appended(owed, new, budget, joins=joins), budget)
    if not owed and not left:  # one range is more than the budget
        return {**end, LANE_FIGURES: figures}
    figures |= {"every": span_of(given), "owed": sum(map(span_of, left)), "since_us": _oldest_us(left)}
    more = {"given": given, "owed": left} if left else {"given": given}
    return {**end, **more, "seq": end["seq"] + span_of(given), LANE_FIGURES: figures}


_OF_A_BATCH = ("given", "owed", "entered", LANE_FIGURES)


def _taken(owed: Sequence[Intake], budget: int | None) -> tuple[Intake, list[Intake]]:
    """Return the oldest of what is owed, within a budget but one range at least, and the rest."""
    ranges: list[Mapping[str, Any]] = []
    punctuation: dict[str, int] = {}
    now_us = spent = 0
    for number, intake in enumerate(owed):
        now_us = max(now_us, intake["now_us"])
        for at, part in enumerate(intake["ranges"]):
            if budget is not None and spent and spent + part["span"] > budget:
                left = [{**intake, "ranges": intake["ranges"][at:]}, *owed[number + 1 :]]
                return {"ranges": ranges, "punctuation": punctuation, "now_us": now_us}, left
            ranges.append(part)
            spent += part["span"]
        punctuation |= intake["punctuation"]
    return {"ranges": ranges, "punctuation": punctuation, "now_us": now_us}, []


def intake_of(end: Offset) -> Intake:
    """Return what is new in a batch that ended at an offset."""
    entered = end.get("entered", {})
    ranges = [
        {**each, **({"entered": entered[each["feed"]]} if each["feed"] in entered else {})} for each in end["ranges"]
    ]
    return {"ranges": ranges, "punctuation": end["punctuation"], "now_us": end["now_us"]}


def _appended(owed: list[Intake], new: Intake, budget: int | None, *, joins: bool) -> list[Intake]:
    """Return what is owed with a new intake, in one with the last if a batch can take both."""
    if not new["ranges"] and not new["punctuation"]:
        return owed
    if not owed or budget is None or span_of(owed[-1]) + span_of(new) > budget // _INTAKES:
        return [*owed, new]
    last = owed[-1]
    ranges = list(last["ranges"])
    places = {each["feed"]: at for at, each in enumerate(ranges)}
    for part in new["ranges"]:
        at = places.get(part["feed"])
        both = _joined(ranges[at], part, budget // _RANGES) if joins and at is not None else None
        if at is not None and both is not None:
            ranges[at] = both
        else:
            places[part["feed"]] = len(ranges)
            ranges.append(part)
    together = {"ranges": ranges, "punctuation": {**last["punctuation"], **new["punctuation"]}}
    return [*owed[:-1], {**together, "now_us": new["now_us"]}]


def _joined(one: Mapping[str, Any], two: Mapping[str, Any], most: int) -> dict[str, Any] | None:
    entered = one.get("entered")
    if entered != two.get("entered") or one["span"] + two["span"] > most:
        return None
    found = joined(Range.from_json(one), Range.from_json(two))
    return None if found is None else {**found.to_json(), **({} if entered is None else {"entered": entered})}


def span_of(intake: Intake) -> int:
    """Return the span of all ranges."""
    return sum(each["span"] for each in intake["ranges"])


def _oldest_us(left: Sequence[Intake]) -> int | None:
    """Return the arrival of the oldest row that is owed, or when it was read if only the row has its arrival."""
    first = next((each for each in left if each["ranges"]), None)
    if first is None:
        return None
    shown = [each["arrival_us"] or (each["place"].get("arrivals") or [[0, None]])[0][1] for each in first["ranges"]]
    return min((each for each in shown if each is not None), default=first["now_us"])
