import decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.aggregates import functions as exact
from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.group_sums import DistinctSums, Points, Sums, as_bytes, from_bytes, stored_schema
from upstream.operators.relations.zsets import OLD, TIME, WEIGHT, cumulated, key_numbers

BY, SCHEMA = pa.schema([("g", pa.int64())]), pa.schema([("v", pa.float64())])
# Values that doubles add up wrongly unless more than 53 bits are kept.
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.sampled_from([1e16, 1.0, -1e16, 0.1, None])),
    min_size=1,
    max_size=60,
)


def placed(rows):
    keys = pl.DataFrame({"g": sorted({g for g, _, _ in rows})})
    ids = np.searchsorted(keys["g"].to_numpy(), [g for g, _, _ in rows])
    times = np.array([t for _, t, _ in rows], dtype=np.int64)
    every = np.arange(keys.height)
    both = np.concatenate([ids, every]), np.concatenate([times, np.full(keys.height, OLD)])
    points = Points(cumulated(*both, np.zeros(len(both[0]), dtype=np.int64)), keys, key_numbers(keys, ["g"]))
    return points, ids, points.positions(ids, times)


def frame(rows):
    kinds = {"g": pl.Int64, TIME: pl.Int64, "v": pl.Float64}
    return pl.DataFrame(rows, schema=kinds, orient="row")


@given(ROWS)
def test_sums_are_those_of_all_rows_up_to_each_point(rows):
    state = OperatorState.in_memory()
    sums = Sums(BY, {"n": exact.count(), "s": exact.sum_("v")}, SCHEMA, state)
    points, _, positions = placed(rows)
    found = sums.step(points, frame(rows), positions, np.ones(len(rows), dtype=np.int64))
    steps = points.steps
    for place, (group, time) in enumerate(zip(steps.ids, steps.times, strict=True)):
        there = [v for g, t, v in rows if g == points.keys["g"][int(group)] and t <= time]
        known = [v for v in there if v is not None]
        total = float(sum(int(v * 10) if abs(v) < 1e15 else int(v) * 10 for v in known) / 10) if known else None
        n, s = found.row(place)
        assert n == len(there)
        assert s == total or abs(s - total) < 1e-9
    # Everything leaves: from the same state, nothing is left.
    last = np.full(len(rows), 31)
    points, ids, _ = placed([(g, 31, v) for g, _, v in rows])
    gone = sums.step(points, frame(rows), points.positions(ids, last), np.full(len(rows), -1))
    assert [gone["n"][int(end)] for end in points.ends] == [0] * points.groups
    assert state.rows == 0


def test_a_value_counts_once_while_any_row_has_it():
    state = OperatorState.in_memory()
    sums = DistinctSums(BY, "x", ["v"], exact.sum_("v"), SCHEMA, state)
    rows = [(1, 1, 5.0), (1, 2, 5.0), (1, 3, 5.0), (1, 4, 7.0), (1, 5, 5.0)]
    weights = [1, 1, -1, 1, -1]
    points, ids, _ = placed(rows)
    found = sums.step(points, frame(rows).with_columns(pl.Series(WEIGHT, weights)), ids)
    assert found["x"].to_list() == [None, 5.0, 5.0, 5.0, 12.0, 7.0]
    assert state.rows == 2


VALUES = [decimal.Decimal("1.50"), None, decimal.Decimal("-" + "9" * 60 + ".25"), decimal.Decimal(0)]
WIDE = pa.table({"n": pa.array([1, 2, 3, 4]), "s": pa.array(VALUES, pa.decimal256(76, 2)), "t": ["a", "b", None, "d"]})


@pytest.mark.parametrize("table", [WIDE, WIDE.slice(1, 2), WIDE.slice(0, 0), pa.concat_tables([WIDE, WIDE.slice(2)])])
def test_they_go_through_a_frame_and_come_back(table):
    stored = as_bytes(table)
    assert stored.schema == stored_schema(table.schema)
    frame = pl.from_arrow(stored)
    back = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(stored.schema)
    assert from_bytes(back, table.schema).equals(table)


def test_other_columns_stay_as_they_are():
    narrow = WIDE.drop_columns(["s"])
    assert as_bytes(narrow) is narrow
    assert from_bytes(narrow, narrow.schema) is narrow
