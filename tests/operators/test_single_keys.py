"""Group-wise punctuation through several steps: the same results, and none of them later."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import upstream as us
from upstream.testing import StreamTester

Row = dict[str, Any]
Event = tuple[str, int]
Stream = us.UpdateStream

KEYS = ("a", "b", "c")
SECONDS: dict[str, Any] = {"emit": "all", "shards": 2}


def counts(stream: Stream, **more: Any) -> Stream:
    return stream.window("4 seconds", **{**SECONDS, **more}).agg(n=us.count())


def totals(stream: Stream) -> Stream:
    return stream.window("8 seconds", shards=3, emit="all").agg(total=us.sum("n"))


def twice(one: Stream) -> Stream:
    return totals(counts(one))


def sessions(one: Stream) -> Stream:
    return totals(one.session_window("2 seconds", shards=2, emit="all").agg(n=us.count()))


def ordered(one: Stream) -> Stream:
    return counts(one.ordered(shards=3))


def distinct(one: Stream) -> Stream:
    return counts(one.distinct("v", shards=3))


def union(one: Stream, two: Stream) -> Stream:
    return counts(one.union(two, shards=3))


def union_of_windows(one: Stream, two: Stream) -> Stream:
    return totals(counts(one).union(counts(two), overlap=False, shards=3))


def merge(one: Stream, two: Stream) -> Stream:
    return counts(one.merge(two, shards=3))


def join(one: Stream, two: Stream) -> Stream:
    near = us.Interval(before="2 seconds", after="3 seconds")
    return counts(one.join(two, on="k", within=near, how="full", shards=3))


def join_of_windows(one: Stream, two: Stream) -> Stream:
    return counts(one).join(counts(two), on="k", within=us.Interval(), how="left", shards=3)


def as_of(one: Stream, two: Stream) -> Stream:
    return counts(one.join_as_of(two, on="k", how="left", shards=3))


STEPS: list[Callable[..., Stream]] = [
    twice, sessions, ordered, distinct, union, union_of_windows, merge, join, join_of_windows, as_of,
]  # fmt: skip


class Run:
    """A query over two inputs at most, with the batch in which each row left."""

    def __init__(self, steps: Callable[..., Stream]) -> None:
        self.tester = StreamTester(
            steps, "k STRING, t BIGINT, v BIGINT", key="k", event_time="t", time_format="epoch_s",
            watermark=us.Watermark.embedded(),
        )  # fmt: skip
        self.inputs = [name for name in ("one", "two") if name in steps.__annotations__]
        self.left: list[tuple[str, int]] = []
        self._batch = 0

    def take(self, name: str, rows: list[Event], bound: int | None, claims: list[Event]) -> list[Row]:
        given_rows: list[Row] = [{"k": key, "t": time, "v": time % 3} for key, time in rows]
        given_rows += [{"k": key, "t": time} for key, time in claims]
        return self._left(self.tester.batch(given_rows, into=name, punctuation=bound))

    def end(self) -> list[Row]:
        return self._left(self.tester.end())

    def _left(self, rows: list[Row]) -> list[Row]:
        self._batch += 1
        for row in rows:  # whichever comes first has the lower number
            own = {name: value for name, value in row.items() if name not in ("left_row", "right_row")}
            self.left.append((repr(sorted(own.items())), self._batch))
        return rows


Case = tuple[str, list[Event], int | None, list[Event]]
"""An input's rows, the punctuation of all keys, and that of single ones."""


@st.composite
def batches(draw: st.DrawFn) -> list[Case]:
    """Rows in any order, with punctuation that is true; the last batches bring the rest."""
    last = draw(st.integers(0, 4))
    place = st.tuples(st.integers(0, last), st.sampled_from(KEYS), st.integers(0, 30))
    events = {name: draw(st.lists(place, max_size=14)) for name in ("one", "two")}
    found: list[Case] = []
    for number in range(last + 1):
        for name, mine in events.items():
            rest = [(key, time) for at, key, time in mine if at > number]
            bound = draw(st.sampled_from([None, min((time for _, time in rest), default=31)]))
            claims = [
                (key, min((time for each, time in rest if each == key), default=31))
                for key in draw(st.lists(st.sampled_from(KEYS), max_size=3))
            ]
            found.append((name, [(key, time) for at, key, time in mine if at == number], bound, claims))
    return found


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: steps.__name__)
@settings(max_examples=6, deadline=None)
@given(cases=batches(), restart=st.integers(0, 8))
def test_true_promises_of_keys_change_no_result_but_when_it_comes(steps, cases, restart):
    runs = [Run(steps), Run(steps)]
    for run in runs:
        for name in run.inputs:  # until it has shown a feed, an input holds back the others, and its end is not known
            run.take(name, [], 0, [])
    for number, (name, rows, bound, claims) in enumerate(cases):
        for run, told in zip(runs, ([], claims), strict=True):
            if name in run.inputs:
                run.take(name, rows, bound, told)
        if number == restart:
            runs[1].tester.restart()
    for run in runs:
        run.end()
        assert run.tester.late == []
    without, with_them = (dict(run.left) for run in runs)
    assert [len(run.left) for run in runs] == [len(without), len(with_them)]
    assert with_them.keys() == without.keys()
    assert all(with_them[row] <= batch for row, batch in without.items())


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: steps.__name__)
def test_a_result_of_a_key_that_is_complete_leaves_though_others_are_not(steps):
    run = Run(steps)
    for name in run.inputs:
        assert run.take(name, [("a", 1), ("a", 6), ("b", 2)], 0, []) == []
    found = [row for name in run.inputs for row in run.take(name, [], None, [("a", 40)])]
    if steps in (ordered, merge):
        assert found == [], "its rows wait for earlier ones of other keys"
        later = run.take(run.inputs[0], [], 7, []) + run.take(run.inputs[-1], [], 7, [])
        assert {row["k"] for row in later} == {"a", "b"}
        return
    assert {row["k"] for row in found} == {"a"}
    assert {row["k"] for row in run.end()} == {"b"}
