"""The arithmetic over change points, against loops."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import QueryError
from upstream.operators.relations import zsets
from upstream.operators.relations.zsets import key_numbers, mixed

EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([zsets.OLD, 0, 1, 2, 3]), st.integers(-2, 3)), max_size=20
)


def columns(events):
    ids, times, weights = (
        np.array(each, dtype=np.int64) for each in (zip(*events, strict=True) if events else ([],) * 3)
    )
    return ids, times, weights


@given(EVENTS)
def test_weights_are_cumulated_over_each_ids_times(events):
    steps = zsets.cumulated(*columns(events))
    expected = [
        (one, time, sum(w for i, t, w in events if i == one and t <= time))
        for one, time in sorted({(i, t) for i, t, _ in events})
    ]
    assert list(zip(steps.ids, steps.times, steps.values[0], strict=True)) == expected
    back = zsets.differences(steps.ids, steps.values[0])
    assert [(one, time, sum(w for i, t, w in events if (i, t) == (one, time))) for one, time, _ in expected] == list(
        zip(steps.ids, steps.times, back, strict=True)
    )
    assert steps.firsts.sum() == steps.lasts.sum() == len({i for i, _, _ in events})


def test_copies_of_equal_rows_are_limited_but_not_rows(monkeypatch):
    monkeypatch.setattr(zsets, "_MOST_GROWTH", 100)
    zsets.check_copies(np.ones(10_000, dtype=np.int64))
    zsets.check_copies(np.array([101, 1]))
    for counts in ([102], [1 << 62, 1 << 62, 1 << 62]):
        with pytest.raises(QueryError, match="more than there are"):
            zsets.check_copies(np.array(counts))
    zsets.check_growth(51, 1, width=1 << 20)
    with pytest.raises(QueryError, match="16,777,216 bytes each"):
        zsets.check_growth(51, 1, width=1 << 24)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), max_size=8))
def test_ranges_are_written_out(ranges):
    begins, ends = (np.array([pair[end] for pair in ranges], dtype=np.int64) for end in (0, 1))
    which, numbers = zsets.expanded(begins, ends)
    expected = [(place, number) for place, (begin, end) in enumerate(ranges) for number in range(begin, end)]
    assert list(zip(which, numbers, strict=True)) == expected


@given(EVENTS, st.integers(1, 6))
def test_rows_are_there_at_the_change_points_of_their_group(events, most):
    events = [(one, time, max(weight, 0)) for one, time, weight in events]
    group_of = np.array([0, 1, 0, 1])
    used = sorted({int(group_of[one]) for one, _, _ in events})
    group_of = np.array([used.index(g) if g in used else 0 for g in group_of])
    rows = zsets.cumulated(*columns(events))
    points = zsets.cumulated(group_of[rows.ids], rows.times, np.zeros(len(rows.ids), dtype=np.int64))
    parts = list(zsets.live(rows, group_of, points, most=most))
    assert [each.begin for each in parts[1:]] == [each.end for each in parts[:-1]]
    assert all(len(each.ids) <= max(most, 4) or each.end == each.begin + 1 for each in parts)
    found = sorted(row for each in parts for row in zip(*(some.tolist() for some in each[2:]), strict=True))
    expected = []
    for place, (group, time) in enumerate(zip(points.ids, points.times, strict=True)):
        for one in range(4):
            weight = sum(w for i, t, w in events if i == one and t <= time)
            if group_of[one] == group and weight > 0:
                expected.append((one, place, weight))
    assert found == sorted(expected)


def test_equal_rows_at_equal_times_are_added_up():
    nan = float("nan")
    frame = pl.DataFrame(
        {
            "f": [nan, -nan, 0.0, -0.0, None, None],
            "l": [[1]] * 6,
            zsets.TIME: [1] * 6,
            zsets.WEIGHT: [1, 1, 2, -2, 1, 3],
        }
    )
    assert zsets.consolidated(frame)[zsets.WEIGHT].to_list() == [2, 4]
    assert zsets.consolidated(frame.with_columns(pl.Series(zsets.TIME, range(6)))).height == 6


def test_values_are_numbered_as_they_first_occur():
    frame = pl.DataFrame({"a": [3, None, 3, 1], "b": ["x", "y", "x", "x"]})
    found = zsets.numbered(frame, ["a", "b"])
    assert found.ids.tolist() == [0, 1, 0, 2]
    assert found.first.tolist() == [0, 1, 3]
    assert zsets.numbered(frame, []).ids.tolist() == [0, 0, 0, 0]
    assert zsets.numbered(frame.clear(), ["a"]).first.tolist() == []


def test_frames_take_the_types_of_a_schema():
    schema = pa.schema([("a", pa.int32()), ("b", pa.string()), ("t", pa.timestamp("us", "UTC"))])
    dtypes = zsets.dtypes_of(schema)
    assert list(zsets.empty_delta(schema).schema.items())[:3] == list(dtypes.items())
    frame = pl.DataFrame({"x": [1], "t": [5], "b": ["z"], "a": [2]})
    same = zsets.conformed(frame, dtypes)
    assert same.columns == ["a", "b", "t", "x"]
    assert zsets.to_table(same, schema).schema == schema
    assert zsets.delta_frame(frame, 4, np.array([2])).select(zsets.TIME, zsets.WEIGHT).rows() == [(4, 2)]


VALUES = [
    pl.Series("v", [1, 2, 1, 3], dtype=pl.Int64),
    pl.Series("v", [1, None, 1, None], dtype=pl.Int32),
    pl.Series("v", [0.0, -0.0, float("nan"), float("nan")]),
    pl.Series("v", [0.5, None, float("nan"), None]),
    pl.Series("v", ["a", "b", "a", ""]),
    pl.Series("v", [(1 << 64) + 1, 2, (1 << 64) + 1, 1 << 100], dtype=pl.Int128),
    pl.Series("v", [[1], [1, 2], [1], []]),
]


@given(st.sampled_from(VALUES), st.lists(st.integers(0, 3), max_size=9), st.data())
def test_values_at_positions_are_those_of_polars(column, at, draw):
    places = np.array(at, dtype=np.int64)
    others = np.array(draw.draw(st.lists(st.integers(0, 3), min_size=len(at), max_size=len(at))), dtype=np.int64)
    assert zsets.taken(column, places).equals(column[at] if at else column[:0], null_equal=True)
    assert zsets.taken(column, places).name == "v"
    assert zsets.same_at(column, places, others).tolist() == column[places].eq_missing(column[others]).to_list()
    if column.dtype != pl.List:
        equal = [[column[one : one + 1].eq_missing(column[two : two + 1])[0] for two in range(4)] for one in range(4)]
        first = [not any(equal[each][before] for before in at[:place]) for place, each in enumerate(at)]
        assert zsets.firsts_of([column], places).tolist() == first
        pair = [not any(each == before for before in at[:place]) for place, each in enumerate(at)]
        assert zsets.firsts_of([column, pl.Series("w", [1, 2, 3, 4])], places).tolist() == pair


def test_changes_come_in_the_order_of_time():
    delta = zsets.delta_frame(pl.DataFrame({"v": [1, 2, 3, 4]}), np.array([2, 1, 2, 1]), 1)
    assert zsets.in_order_of_time(delta)["v"].to_list() == [2, 4, 1, 3]
    assert zsets.in_order_of_time(delta[[1, 3, 0]])["v"].to_list() == [2, 4, 1]


def test_equal_keys_have_equal_numbers():
    frame = pl.DataFrame({"f": [0.0, -0.0, float("nan"), -float("nan"), None], "k": ["a"] * 5})
    numbers = key_numbers(frame, ["f", "k"])
    assert numbers[0] == numbers[1]
    assert numbers[2] == numbers[3]
    assert len(set(numbers.tolist())) == 3


def test_numbers_are_those_of_spark():
    assert key_numbers(pl.DataFrame({"k": [1]}, schema={"k": pl.Int64}), ["k"]).tolist() == [-1712319331]


def test_columns_that_cannot_be_hashed_do_not_contribute():
    frame = pl.DataFrame({"l": [[1], [2]], "k": [1, 2]})
    assert key_numbers(frame, ["l"]).tolist() == [0, 0]
    assert key_numbers(frame, ["l", "k"]).tolist() == key_numbers(frame, ["k"]).tolist()
    assert key_numbers(frame, []).tolist() == [0, 0]


def test_mixed_numbers_are_spread_evenly_and_depend_on_each_part():
    drawn = mixed(np.arange(64_000), 5)
    counts = np.bincount((drawn >> np.uint64(58)).astype(np.int64), minlength=64)
    assert counts.min() > 850
    assert counts.max() < 1150
    assert not (drawn == mixed(np.arange(64_000), 6)).any()
    assert (drawn == mixed(np.arange(64_000), 5)).all()
