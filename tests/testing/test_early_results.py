"""Pipelines over results that are taken back, against the same question to all rows: in any order of time, cut into
any batches, and over restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import upstream as us
from upstream.testing import StreamTester

SCHEMA = "k STRING, t BIGINT, r STRING, v BIGINT"

Row = dict[str, Any]
Step = tuple[Callable[..., Any], Callable[..., list[Row]]]
"""A step of the stream, and what it makes of a relation."""

BEFORE, AFTER = 2, 3


def rows() -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries(
        {
            "k": st.sampled_from("ab"),
            "t": st.integers(0, 12),
            "r": st.sampled_from(["x", "y", None]),
            "v": st.integers(-3, 5),
        }
    )
    return st.lists(row, max_size=5)


def paired(one: Row | None, other: Row | None) -> Row:
    """A result of both rows; those of the right have the names of their columns with a suffix."""
    found = {name: None if one is None else one[name] for name in "ktrv"}
    found |= {f"{name}_right": None if other is None else other[name] for name in "trv"}
    return found | {"k": (one or other or {})["k"]}


def outer(how: str) -> Step:
    def step(left: Any, right: Any) -> Any:
        near = us.interval(before=BEFORE, after=AFTER)
        return left.join(right, on="k", within=near, how=how, early=True, shards=2)

    def batch(left: list[Row], right: list[Row]) -> list[Row]:
        def meets(one: Row, two: Row) -> bool:
            return one["k"] == two["k"] and -BEFORE <= two["t"] - one["t"] <= AFTER

        found = [paired(one, two) for one in left for two in right if meets(one, two)]
        if how in ("left", "full"):
            found += [paired(one, None) for one in left if not any(meets(one, two) for two in right)]
        if how in ("right", "full"):
            found += [paired(None, two) for two in right if not any(meets(one, two) for one in left)]
        return found

    return step, batch


def as_of(how: str) -> Step:
    def step(left: Any, right: Any) -> Any:
        return left.join_as_of(right, on="k", how=how, early=True, shards=2)

    def batch(left: list[Row], right: list[Row]) -> list[Row]:
        found: list[Row] = []
        for one in left:
            known = [(two["t"], at) for at, two in enumerate(right) if two["k"] == one["k"] and two["t"] <= one["t"]]
            if known:
                found.append(paired(one, right[max(known)[1]]))
            elif how == "left":
                found.append(paired(one, None))
        return found

    return step, batch


FIRST = st.sampled_from([outer("left"), outer("right"), outer("full"), as_of("left"), as_of("inner")])

THEN: list[Step] = [
    (lambda stream: stream, lambda found: found),
    (lambda stream: stream.where("v_right > 0"), lambda found: [r for r in found if (r["v_right"] or 0) > 0]),
    (
        lambda stream: stream.where("v IS NULL OR v > v_right"),
        lambda found: [r for r in found if r["v"] is None or (r["v_right"] is not None and r["v"] > r["v_right"])],
    ),
    (
        lambda stream: stream.select("v", "v_right + 1 AS v_right", "r"),
        lambda found: [{**r, "v_right": None if r["v_right"] is None else r["v_right"] + 1} for r in found],
    ),
    (lambda stream: stream.queue(policy="in-place", budget=3, shards=2), lambda found: found),
    (lambda stream: stream.queue(policy="append", budget=3, shards=2), lambda found: found),
]


def newest(found: list[Row]) -> list[Row]:
    """The newest row of each key, by time, and of two with one time the later arrival."""
    by_key: dict[str, Row] = {}
    for row in found:
        if row["k"] not in by_key or row["t"] >= by_key[row["k"]]["t"]:
            by_key[row["k"]] = row
    return list(by_key.values())


def summed(found: list[Row]) -> dict[Any, tuple[int, int]]:
    groups: dict[Any, Counter[str]] = {}
    for row in found:
        if row["r"] is not None:
            groups.setdefault(row["r"], Counter()).update(n=1, v=row["v_right"] or 0)
    return {group: (each["n"], each["v"]) for group, each in groups.items()}


def bag(found: list[Row]) -> Counter[Any]:
    return Counter((row["k"], row["v"], row["v_right"]) for row in found)


@given(
    FIRST,
    st.lists(st.sampled_from(THEN), max_size=2),
    st.sampled_from(["rows", "groups", "join"]),
    st.lists(st.tuples(rows(), rows(), rows(), st.booleans()), min_size=1, max_size=4),
)
def test_pipelines_over_changes_equal_the_question_to_all_rows(
    first: Step, then: list[Step], last: str, batches: list[tuple[list[Row], list[Row], list[Row], bool]]
) -> None:
    def steps(left: Any, right: Any, more: Any) -> Any:
        stream = first[0](left, right)
        for step, _ in then:
            stream = step(stream)
        if last == "groups":
            return stream.group_by("r", shards=3).agg(n=us.count(), v=us.sum("v_right"))
        if last == "join":
            return stream.select("v", "v_right", "r").join_latest(more, on="k", suffix="_more", shards=2)
        return stream

    tester = StreamTester(
        steps, SCHEMA, key="k", event_time="t", time_format="epoch_us", watermark=us.Watermark.embedded()
    )
    left, right, third = list[Row](), list[Row](), list[Row]()
    for one, two, three, restart in batches:
        tester.batch(one, into="left")
        tester.batch(two, into="right")
        tester.batch(three, into="more")
        left += one
        right += two
        third += three
        if restart:
            tester.restart()
    tester.end()
    found = first[1](left, right)
    for _, step in then:
        found = step(found)
    held = tester.latest()
    if last == "groups":
        assert {row["r"]: (row["n"], row["v"] or 0) for row in held} == summed(found)
    elif last == "join":
        partners = {row["k"]: row["v"] for row in newest(third)}
        expected = Counter(
            (row["k"], row["v"], row["v_right"], partners[row["k"]]) for row in found if row["k"] in partners
        )
        assert Counter((row["k"], row["v"], row["v_right"], row["v_more"]) for row in held) == expected
    else:
        assert bag(held) == bag(found)


def test_with_latest_a_table_by_window_keeps_the_early_result_of_a_window_that_was_passed_over() -> None:
    """As docs/windows.md says: the key's own table has the latest window alone, and `all` gives every final result."""
    for output, finals in (("latest", [False, True]), ("all", [True, True])):
        run = StreamTester(
            lambda stream, output=output: stream.window(
                "10 seconds", output=output, early=True, time_format="epoch_s"
            ).agg(n=us.count()),
            SCHEMA, key="k", event_time="t", time_format="epoch_s", watermark=us.Watermark.embedded(),
        )  # fmt: skip
        for time in (5, 15):
            run.batch([{"k": "a", "t": time, "v": 1}])
        run.batch(punctuation=30)
        found = run.latest(key=("k", "window_id"))
        assert [(row["window_id"], row["final"]) for row in found] == list(enumerate(finals))
        assert [(row["window_id"], row["final"]) for row in run.latest()] == [(1, True)]
