"""APPROX_COUNT_DISTINCT over continuous relations: exact where rows leave, else a sketch of bounded size."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import BUSES, CATALOG, EPOCH, TRADE, refused, relation

from upstream.language import bind
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.bounds import state_of
from upstream.operators.relations.plan.nodes import Stream
from upstream.operators.state.store import DictStore

END_US = int((EPOCH + timedelta(days=2)).timestamp() * 1_000_000)
PER_SYM = "SELECT sym, APPROX_COUNT_DISTINCT(n{}) AS x FROM trade{} GROUP BY sym"


def trades(values, groups, hours=0):
    """Rows of some groups, one second apart, with these values."""
    at = np.arange(len(values)) % (3600 * max(hours, 1))
    return pl.DataFrame(
        {
            "sym": [f"g{each}" for each in groups],
            "px": pl.Series(values).cast(pl.Float64),
            "n": values,
            "t": [EPOCH + timedelta(seconds=int(each)) for each in at],
        },
        schema_overrides={"t": pl.Datetime("us", "UTC")},
    )


def stepped(sql, steps, name="trade", until=END_US):
    """The rows of a query after steps, each with a new evaluation over what the one before saved; and its store."""
    store, counts = DictStore(), Counter()
    for number, rows in enumerate(steps):
        evaluation = Evaluation(store)
        evaluation.add("q", bind(sql, CATALOG).plan, collapse=True)
        last = number == len(steps) - 1
        outcome = evaluation.step({name: rows}, until if last else int(EPOCH.timestamp() * 1_000_000) - 1)
        assert not outcome.failed, outcome.failed
        for *row, _, weight in outcome.changes["q"].rows():
            counts[tuple(row)] += weight
        evaluation.save()
    return {row for row, count in counts.items() if count}, store


def cut(rows, cuts):
    """Rows in pieces, at places that are given as shares."""
    places = [0, *sorted(int(each * rows.height) for each in cuts), rows.height]
    return [rows[low:high] for low, high in pairwise(places)]


@pytest.mark.parametrize("window", ["", " [RANGE 2 HOURS SLIDE 1 HOUR]"])
@given(cuts=st.lists(st.floats(0, 1), max_size=4), seed=st.integers(0, 9))
def test_any_split_gives_the_same_result(window, cuts, seed):
    generator = np.random.default_rng(7)
    values, groups = generator.integers(0, 900, 1_200), generator.integers(0, 2, 1_200)
    rows = trades(values, groups)
    sql = PER_SYM.format("", window) + " EMIT CHANGES"
    until = int((EPOCH + timedelta(hours=1, seconds=1)).timestamp() * 1_000_000)
    shuffled = rows[np.random.default_rng(seed).permutation(rows.height)]
    assert stepped(sql, cut(shuffled, cuts), until=until)[0] == stepped(sql, [rows], until=until)[0]


@pytest.mark.parametrize("function", ["APPROX_COUNT_DISTINCT", "MAX", "MIN"])
def test_state_does_not_grow_with_the_values(function):
    sizes = {}
    for rows in (8_000, 32_000):
        values = np.arange(rows)
        _, store = stepped(
            PER_SYM.format("", "").replace("APPROX_COUNT_DISTINCT", function), [trades(values, values % 4)]
        )
        sizes[rows] = sum(len(each) for each in store.values.values())
    assert sizes[32_000] < sizes[8_000] + 500
    assert sizes[32_000] < 4 * 600 + 6_000


def test_results_are_exact_where_rows_leave():
    size = 3_000
    rows = pl.DataFrame(
        {
            "vehicle_id": [f"v{number % size}" for number in range(2 * size)],
            "route_id": [f"r{number % 2}" for number in range(2 * size)],
            "speed": [float(number) for number in range(2 * size)],
            "timestamp": [EPOCH + timedelta(seconds=number // size) for number in range(2 * size)],
        },
        schema_overrides={"timestamp": pl.Datetime("us", "UTC")},
    )
    sql = "SELECT route_id, APPROX_COUNT_DISTINCT(speed, 0.1) AS x FROM LATEST(buses) GROUP BY route_id"
    found, _ = stepped(sql, cut(rows, [0.3, 0.7]), BUSES.name)
    assert found == {("r0", size // 2), ("r1", size // 2)}


@pytest.mark.parametrize(
    ("sql", "keeps"),
    [
        ("SELECT APPROX_COUNT_DISTINCT(n) AS x FROM trade", "a sketch of n with an error of 0.05 per group"),
        ("SELECT APPROX_COUNT_DISTINCT(n, 0.2) AS x FROM trade", "a sketch of n with an error of 0.2 per group"),
        ("SELECT APPROX_COUNT_DISTINCT(t) AS x FROM trade", "a sketch of t with an error of 0.05 per group"),
        ("SELECT APPROX_COUNT_DISTINCT(n) AS x FROM trade [RANGE 1 HOUR]", "a weight per value of n in each group"),
    ],
)
def test_what_is_kept_is_explained(sql, keeps):
    assert state_of(relation(sql))[-1].keeps.endswith(keeps)


@pytest.mark.parametrize("error", ["0.0009", "0.4", "0", "-0.1", "1e300", "TRUE", "'0.1'", "NULL", "n"])
def test_an_error_that_no_sketch_has_is_refused(error):
    refused(f"SELECT APPROX_COUNT_DISTINCT(n, {error}) AS x FROM trade [RANGE 1 HOUR]", "APPROX_COUNT_DISTINCT")


def test_values_that_no_sketch_takes_are_refused_where_rows_stay():
    schema = TRADE.schema.append(pa.field("p", pa.struct({"a": pa.int64()})))
    catalog = CATALOG.with_stream(Stream("pairs", schema, event_time="t"))
    sql = "SELECT APPROX_COUNT_DISTINCT(p) AS x FROM pairs"
    refused(sql, "keeps a sketch, and none takes STRUCT<a: BIGINT>", catalog=catalog)
    bind(f"{sql} [RANGE 1 HOUR SLIDE 1 HOUR]", catalog)
