"""Arguments of joins that need no Spark."""

from __future__ import annotations

import datetime as dt

import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError, StateLimitError
from upstream.core.feedback.join_reports import JoinReport
from upstream.testing import StreamTester


def test_joins_run_without_spark():
    def steps(left, right):
        return left.join(right, on="k", within=us.interval(before=2, after=3), how="left", shards=2)

    tester = StreamTester(steps, "k STRING, t BIGINT, v BIGINT", key="k", event_time="t", time_format="epoch_us")
    tester.batch([{"k": "a", "t": 10, "v": 1}, {"k": "b", "t": 10, "v": 2}], into="left")
    (pair,) = tester.batch([{"k": "a", "t": 13, "v": 3}], into="right")
    assert (pair["v"], pair["v_right"], pair["join_time"]) == (1, 3, 13)
    assert [(row["v"], row["v_right"]) for row in tester.end()] == [(2, None)]


def test_results_of_windows_are_joined():
    def counts(left, right):
        one, two = (each.window("10 seconds", output="all", shards=2).agg(n=us.count()) for each in (left, right))
        return one.join(two, on="k", within=us.interval(), how="left", shards=2)

    tester = StreamTester(counts, "k STRING, t TIMESTAMP", key="k", event_time="t")
    at = [dt.datetime(2024, 1, 1, 0, 0, second, tzinfo=dt.timezone.utc) for second in range(30)]
    tester.batch([{"k": "a", "t": at[each]} for each in (1, 2, 12)] + [{"k": "b", "t": at[3]}], into="left")
    tester.batch([{"k": "a", "t": at[9]}], into="right")
    found = sorted((row["k"], row["window_id"] % 2, row["n"], row["n_right"]) for row in tester.end())
    first = int(at[0].timestamp()) // 10 % 2
    assert found == sorted([("a", first, 2, 1), ("a", 1 - first, 1, None), ("b", first, 1, None)])


def test_tombstones_end_a_join_by_time_with_a_sentence():
    def steps(left, right):
        return left.join(right, on="k", within=us.interval(before=0, after=9), shards=1)

    tester = StreamTester(steps, "k STRING, t BIGINT", key="k", event_time="t", time_format="epoch_us")
    with pytest.raises(SchemaError, match=r"1 rows before the join are tombstones.*leave them out before the join"):
        tester.batch([{"k": "a", "t": 1, "_upstream": {"deleted": True}}], into="right")
    assert tester.batch([{"k": "a", "t": 1}], into="right") == []


def bounded(**limit):
    def steps(left, right):
        return left.join(right, on="k", within=us.interval(before=99, after=99), how="left", shards=1, **limit)

    return StreamTester(steps, "k STRING, t BIGINT, v BIGINT", key="k", event_time="t", time_format="epoch_us")


def test_a_limit_of_the_state_drops_the_oldest_rows():
    tester = bounded(state_limit="4 kB", on_limit="drop_oldest")
    tester.batch([{"k": "a", "t": at, "v": at} for at in range(400)], into="left")
    tester.batch([{"k": "b", "t": 3, "v": 0}], into="right")
    ended = sorted(row["v"] for row in tester.end())
    assert 0 < len(ended) < 400
    assert ended == list(range(400 - len(ended), 400))


def test_a_limit_of_the_state_may_change():
    tester = bounded(state_limit=4000)
    rows = [{"k": "a", "t": at, "v": at} for at in range(400)]
    with pytest.raises(StateLimitError, match="state_limit=4000"):
        tester.batch(rows, into="left")
    higher = bounded(state_limit="1 MB")
    tester.restart(higher._steps)
    tester.batch(rows, into="left")
    tester.batch([{"k": "b", "t": 3, "v": 0}], into="right")
    assert len(tester.end()) == 400


@pytest.mark.parametrize(
    ("limit", "match"), [({"state_limit": "much"}, "a size such as"), ({"on_limit": "shrug"}, "fail, drop_oldest")]
)
def test_a_limit_that_is_none(limit, match):
    with pytest.raises(OptionError, match=match):
        bounded(**limit)


def test_newest_rows_run_without_spark():
    def steps(left, right):
        return left.join_latest(right, on="r", shards=2).group_by("r", shards=2).agg(n=us.count())

    schemas = {"left": "k STRING, t BIGINT, r STRING", "right": "k STRING, t BIGINT, r STRING"}
    tester = StreamTester(steps, schemas, key="k", event_time="t", time_format="epoch_us")
    tester.batch([{"k": "a", "t": 1, "r": "x"}, {"k": "b", "t": 1, "r": "x"}], into="left")
    tester.batch([{"k": "p", "t": 1, "r": "x"}, {"k": "q", "t": 1, "r": "y"}], into="right")
    assert {row["r"]: row["n"] for row in tester.latest()} == {"x": 2}
    tester.batch([{"k": "a", "t": 2, "r": "y"}], into="left")
    assert {row["r"]: row["n"] for row in tester.latest()} == {"x": 1, "y": 1}
    tester.batch([{"k": "q", "t": 2, "r": "x"}], into="right")
    assert {row["r"]: row["n"] for row in tester.latest()} == {"x": 2}


def test_as_of_runs_without_spark():
    def steps(left, right):
        return left.join_as_of(right, on="k", shards=1)

    tester = StreamTester(steps, "k STRING, t BIGINT, v BIGINT", key="k", event_time="t", time_format="epoch_us")
    tester.batch([{"k": "a", "t": 10, "v": 1}], into="left")
    tester.batch([{"k": "a", "t": 9, "v": 2}, {"k": "a", "t": 11, "v": 3}], into="right")
    assert [(row["v"], row["v_right"]) for row in tester.end()] == [(1, 2)]


def in_order(**given):
    def steps(left, right):
        near = us.interval(before=2, after=2)
        return left.join(right, on="k", within=near, output_order="event_time", shards=2, **given)

    return StreamTester(steps, "k STRING, t BIGINT, v BIGINT", key="k", event_time="t", time_format="epoch_us")


@pytest.mark.parametrize("release", ["sync", "filter"])
def test_results_in_the_order_of_time_run_without_spark(release):
    tester = in_order(release=release)
    rows = [{"k": "a", "t": 10, "v": 1}, {"k": "a", "t": 12, "v": 2}]
    assert tester.batch(rows, into="left", punctuation=12) == []
    assert tester.batch([{"k": "a", "t": 12, "v": 3}], into="right", punctuation=10) == []
    found = tester.batch([{"k": "a", "t": 11, "v": 4}], into="right", punctuation=12)
    assert [row["join_time"] for row in found] == [11, 12, 12, 12]
    tester.restart()
    assert tester.batch([{"k": "a", "t": 10, "v": 5}], into="right") != []  # with the left's row at 12, at the bound
    assert [(row["join_time"], row["v"], row["v_right"]) for row in tester.late] == [(10, 1, 5)]


def test_the_way_to_the_order_is_chosen_without_spark():
    tester = in_order(release="adaptive", cost=1e7, time_format="epoch_us")
    for second in range(1, 4):
        rows = [{"k": key, "t": second, "v": second} for key in "ab"]
        tester.batch(rows, into="left", punctuation=second)
        tester.batch(rows, into="right", punctuation=second)
    reports = [
        each for place in tester._checkpoint.reports.values() for each in place.values() if isinstance(each, JoinReport)
    ]
    assert {each.release for each in reports} == {"filter"}
    (tick,) = tester._checkpoint.ticks.values()
    assert (tick["tick"], tick["mode"], tick["cost"]) == (1, "filter", 1e7)
    assert tick["load"] > 0.3
    assert len([*tester.table.column("v").to_pylist(), *tester.end()]) == 2 * (3 + 2 * 2 + 2)
