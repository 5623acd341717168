"""What joins must have given after each batch, by comparing each row with each other."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from upstream.core.feedback.reports import JoinReport

from . import oracle
from .inputs import Row
from .join_stages import group_of
from .stages import MismatchError

Pair = tuple[str | None, str | None]
"""Values of the left row and of the right one."""


def check_join(
    given: Sequence[dict[str, Any]], read: Sequence[Row], ever: Sequence[Row], low: int | None, stage: dict[str, Any],
    *, honest: bool,
) -> None:  # fmt: skip
    """Each pair is given in the batch that brings its later row; who has no partner is given once that is sure."""
    how, before, after = stage["how"], stage["before"] * 1000, stage["after"] * 1000
    alone = how in ("semi", "anti")
    if stage.get("early"):
        check_early(given, read, stage)
        return
    got: Counter[Pair] = Counter((row["v"], None if alone else row["v_right"]) for row in given)
    twice = [pair for pair, count in got.items() if count > 1]
    if twice:
        raise MismatchError(f"{how} join: given twice: {twice}")

    met = _met(read, stage)
    if how == "semi":
        wanted: set[Pair] = {(left.value, None) for left, _ in met}
    else:
        wanted = set() if how == "anti" else {(left.value, right.value) for left, right in met}
    pairs = {pair for pair in got if how == "semi" or None not in pair}
    whole = honest and not stage.get("limit")
    if stage.get("in_order"):
        check_order(given, stage)
        # Rows without a partner, whose time is theirs, come in between.
        reach = max(after, 0) if how == "left" else 0
        due = {(one.value, two.value) for one, two in met if low is not None and max(one.time, two.time) < low - reach}
        missing = due - pairs
        if missing or pairs - wanted:
            raise MismatchError(f"{how} join in order: missing {missing} at {low}, too many {pairs - wanted}")
    elif pairs - wanted or (whole and pairs != wanted):
        raise MismatchError(f"{how} join: missing {sorted(wanted - pairs)}, too many {sorted(pairs - wanted)}")
    if not honest or how == "semi":
        return
    meets = _meeting(stage)
    # Who has no partner among all that will ever come, and from which time on that is not yet sure; in the order of
    # time, nor may it leave before.
    lonely: dict[Pair, int] = {}
    if stage.get("in_order"):
        before, after = max(before, 0), max(after, 0)
    if how in ("left", "full", "anti"):
        lonely |= {(row.value, None): row.time + after for row in ever if not any(meets(row, each) for each in ever)}
    if how in ("right", "full"):
        lonely |= {(None, row.value): row.time + before for row in ever if not any(meets(each, row) for each in ever)}
    unmatched = set(got) - pairs
    if unmatched - lonely.keys():
        raise MismatchError(f"{how} join: {sorted(map(str, unmatched - lonely.keys()))} have a partner")
    if stage.get("limit"):
        return
    came = {row.value for row in read}
    due = {pair for pair, last in lonely.items() if (pair[0] or pair[1]) in came and low is not None and last < low}
    if due - unmatched:
        raise MismatchError(f"{how} join: without a partner, and not given at {low}: {due - unmatched}")


def _meeting(stage: dict[str, Any]) -> Callable[[Row, Row], bool]:
    before, after = stage["before"] * 1000, stage["after"] * 1000
    return lambda left, right: left.key == right.key and -before <= right.time - left.time <= after


def _met(rows: Sequence[Row], stage: dict[str, Any]) -> list[tuple[Row, Row]]:
    meets = _meeting(stage)
    return [(left, right) for left in rows for right in rows if meets(left, right)]


def check_early(given: Sequence[dict[str, Any]], read: Sequence[Row], stage: dict[str, Any]) -> None:
    """After each batch the newest result of each key is there for each pair and each row without a partner so far."""
    how, met = stage["how"], _met(read, stage)
    time, numbers = ("t", ("left_row",)) if how == "anti" else ("join_time", ("left_row", "right_row"))
    newest: dict[tuple[Any, ...], tuple[tuple[int, int], dict[str, Any]]] = {}
    for row in given:
        key, order = (row["k"], *(row[name] for name in numbers)), (row[time], row["_upstream"]["seq"])
        if key not in newest or order >= newest[key][0]:
            newest[key] = order, row
    there = [row for _, row in newest.values() if not row["_upstream"]["deleted"]]
    got = Counter((row["v"], None if how == "anti" else row["v_right"]) for row in there)
    lefts, rights = {left.value for left, _ in met}, {right.value for _, right in met}
    wanted: Counter[Pair] = Counter() if how == "anti" else Counter((one.value, two.value) for one, two in met)
    if how != "right":
        wanted.update((row.value, None) for row in read if row.value not in lefts)
    if how in ("right", "full"):
        wanted.update((None, row.value) for row in read if row.value not in rights)
    if got != wanted:
        raise MismatchError(f"early {how} join: missing {wanted - got}, too many {got - wanted}")


def check_order(given: Sequence[dict[str, Any]], stage: dict[str, Any]) -> None:
    """Results of a shard are in the order of time."""
    last: dict[str, int] = {}
    for row in given:
        shard = row["_upstream"]["source"]
        if row["join_time"] < last.get(shard, row["join_time"]):
            raise MismatchError(f"{stage['how']} join in order: {row['join_time']} after {last[shard]} in {shard}")
        last[shard] = row["join_time"]


def check_shed(given: Sequence[dict[str, Any]], read: Sequence[Row], reports: Sequence[JoinReport]) -> None:
    """Of a full join with a limit, each row that is in no result is kept, or counted as dropped or unsure."""
    for side, name in (("left", "v"), ("right", "v_right")):
        left_out = {row.value for row in read} - {row[name] for row in given}
        known = sum(getattr(each, f"{side}_{what}") for each in reports for what in ("kept", "shed", "unsure"))
        if len(left_out) > known:
            raise MismatchError(f"{len(left_out)} rows of the {side} are nowhere, and {known} are accounted for")


def newest_pairs(rows: Sequence[Row]) -> dict[int, tuple[int, str, str]]:
    """By key the time and value of its newest row, and the value of its partner, the newest row of the group."""
    groups = oracle.newest(row._replace(key=group_of(row.time)) for row in rows)
    newest = oracle.newest(rows)
    return {key: (time, value, groups[group_of(time)][1]) for key, (time, value) in newest.items()}
