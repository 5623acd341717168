"""Pipelines over newest rows, batch by batch and over restarts, against the same question to the newest rows so far."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import upstream as us
from upstream.testing import StreamTester

SCHEMA = "k STRING, t BIGINT, r STRING, v BIGINT"

Row = dict[str, Any]


def rows() -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries(
        {
            "k": st.sampled_from("abcd"),
            "t": st.integers(0, 9),
            "r": st.sampled_from(["x", "y", "z", None]),
            "v": st.integers(-3, 5),
        }
    )
    return st.lists(row, max_size=6)


def newest(rows: list[Row]) -> list[Row]:
    """The newest row of each key, of those whose value is not negative: the others delete their key."""
    found: dict[str, Row] = {}
    for row in rows:
        if row["k"] not in found or row["t"] >= found[row["k"]]["t"]:
            found[row["k"]] = row
    return [row for row in found.values() if row["v"] >= 0]


def kept(stream: Any) -> Any:
    return stream.where("v >= 0", on_leave="delete")


def on_the_way(left: Any, right: Any) -> Any:
    pairs = kept(left).join_latest(kept(right), on="r", shards=2).select("r", "v", "v_right")
    return pairs.group_by("r", shards=3).agg(n=us.count(), v=us.sum("v"), w=us.sum("v_right"))


def three(left: Any, right: Any, more: Any) -> Any:
    pairs = kept(left).join_latest(kept(right), on="r", shards=2)
    return pairs.join_latest(kept(more), on="k", suffix="_more", shards=3)


@given(st.lists(st.tuples(rows(), rows(), st.booleans()), min_size=1, max_size=5))
def test_groups_of_pairs(batches: list[tuple[list[Row], list[Row], bool]]) -> None:
    tester = StreamTester(on_the_way, SCHEMA, key="k", event_time="t", time_format="epoch_us")
    left, right = list[Row](), list[Row]()
    for one, two, restart in batches:
        tester.batch(one, into="left")
        tester.batch(two, into="right")
        if restart:
            tester.restart()
        left += one
        right += two
        groups: dict[str, Counter[str]] = {}
        for mine in newest(left):
            for other in newest(right):
                if mine["r"] is not None and mine["r"] == other["r"]:
                    groups.setdefault(mine["r"], Counter()).update(n=1, v=mine["v"], w=other["v"])
        found = {row["r"]: (row["n"], row["v"], row["w"]) for row in tester.latest()}
        assert found == {group: (each["n"], each["v"], each["w"]) for group, each in groups.items()}


@given(st.lists(st.tuples(rows(), rows(), rows()), min_size=1, max_size=4))
def test_a_join_of_a_join(batches: list[tuple[list[Row], list[Row], list[Row]]]) -> None:
    tester = StreamTester(three, SCHEMA, key="k", event_time="t", time_format="epoch_us")
    so_far: list[list[Row]] = [[], [], []]
    for batch in batches:
        for given_rows, name, side in zip(batch, ("left", "right", "more"), so_far, strict=True):
            tester.batch(given_rows, into=name)
            side.extend(given_rows)
        left, right, more = map(newest, so_far)
        expected = {
            (one["k"], two["k"]): (one["v"], two["v"], three["v"])
            for one in left
            for two in right
            for three in more
            if one["r"] is not None and one["r"] == two["r"] and one["k"] == three["k"]
        }
        found = {(row["k"], row["k_right"]): (row["v"], row["v_right"], row["v_more"]) for row in tester.latest()}
        assert found == expected
