"""Sketches are as accurate as they say, and the same rows give the same result."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.errors import EnvironmentMissingError, OptionError, SchemaError
from upstream.operators.aggregates import sketches
from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.approximate import approx_count_distinct, heavy_hitters, median, quantile

from .oracle import SCHEMA, grouped_rows, in_pieces, spark_order, values

GROUPS = 5
PROBABILITIES = [0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0]


def pieces_of(aggregates, column, codes, groups, pieces, generator):
    """Rows shuffled and dealt out to pieces; the states combined in one step."""
    order = generator.permutation(len(column))
    parts = np.array_split(order, pieces)
    states = [aggregates.lift(pa.table({"v": column.take(pa.array(part))}), codes[part], groups) for part in parts]
    return aggregates.combine(pa.concat_tables(states), np.tile(np.arange(groups), pieces), groups)


@settings(max_examples=40)
@given(grouped_rows(), st.data())
def test_few_values_are_exact(grouped, data):
    names = ["i", "small", "d", "wide", "f", "s", "b", "day", "at"]
    ordered = [name for name in names if name not in ("wide", "s")]
    asked = {f"distinct {name}": approx_count_distinct(name) for name in names}
    asked |= {f"heavy {name}": heavy_hitters(name, limit=3) for name in names}
    asked |= {f"{p} {name}": quantile(name, p) for name in ordered for p in PROBABILITIES}
    aggregates = Aggregates.of(asked, SCHEMA)
    pieces = data.draw(st.lists(st.integers(0, 3), min_size=len(grouped), max_size=len(grouped)))
    state = in_pieces(aggregates, grouped, GROUPS, pieces, data.draw(st.randoms(use_true_random=False)))
    result = aggregates.lower(state)
    assert result.schema == aggregates.result_schema
    for group, found in enumerate(result.to_pylist()):
        for name in names:
            mine = [0.0 if value == 0 and name == "f" else value for value in values(grouped, group, name)]
            counts = Counter("NaN" if value != value else value for value in mine)
            assert found[f"distinct {name}"] == len(counts)
            items = [
                ("NaN" if row["item"] != row["item"] else row["item"], row["count"]) for row in found[f"heavy {name}"]
            ]
            assert len(items) == min(3, len(counts))
            assert all(counts[item] == count for item, count in items)
            assert sorted(count for _, count in items) == sorted(counts.values())[-3:]
            assert all(row["error"] == 0 for row in found[f"heavy {name}"])
        for name in ordered:
            mine = sorted(values(grouped, group, name), key=spark_order)
            for p in PROBABILITIES:
                value = mine[max(1, math.ceil(p * len(mine))) - 1] if mine else None
                assert found[f"{p} {name}"] == value or (value != value and math.isnan(found[f"{p} {name}"]))


NUMBERS = {
    "uniform": lambda generator, n: generator.random(n),
    "sorted": lambda generator, n: np.sort(generator.random(n)),
    "heavy tail": lambda generator, n: np.exp(8 * generator.normal(size=n)),
    "few values": lambda generator, n: generator.integers(0, 5, n).astype(float),
    "two far apart": lambda generator, n: np.where(generator.random(n) < 0.5, 0, 1e9) + generator.normal(size=n),
}


@pytest.mark.parametrize("shape", NUMBERS)
@pytest.mark.parametrize(("error", "pieces"), [(0.01, 1), (0.01, 200), (0.05, 40)])
def test_quantiles_are_within_their_error(shape, error, pieces):
    generator = np.random.default_rng(11)
    rows, groups = 100_000, 3
    numbers = NUMBERS[shape](generator, rows)
    codes = np.arange(rows) % 10 % groups
    aggregates = Aggregates.of(
        {str(p): quantile("v", p, error=error) for p in PROBABILITIES}, pa.schema({"v": pa.float64()})
    )
    state = pieces_of(aggregates, pa.array(numbers), codes, groups, pieces, generator)
    found = aggregates.lower(state).to_pylist()
    for group in range(groups):
        mine = np.sort(numbers[codes == group])
        for p in PROBABILITIES:
            low, high = (np.searchsorted(mine, found[group][str(p)], side) / len(mine) for side in ("left", "right"))
            assert low - error <= p <= high + error, f"{p} is between {low} and {high}"
    kept = np.array([len(kept) for kept in state.column(0).to_pylist()])
    assert kept.max() < 6 * 2.3 / error  # it is a sketch, and does not keep its rows


def test_the_same_pieces_give_the_same_states_in_whatever_order_they_come():
    numbers = np.random.default_rng(4).zipf(1.2, 60_000) % 10**9
    asked = {"d": approx_count_distinct("v"), "q": median("v", error=0.05), "h": heavy_hitters("v", error=0.05)}
    aggregates = Aggregates.of(asked, pa.schema({"v": pa.int64()}))

    def run(seed):
        shuffled = np.random.default_rng(seed)
        parts = [pa.table({"v": shuffled.permutation(part)}) for part in np.array_split(numbers, 12)]
        states = [aggregates.lift(part, np.zeros(len(part), dtype=np.int64), 1) for part in parts]
        states = pa.concat_tables([states[place] for place in shuffled.permutation(12)])
        return aggregates.combine(states, np.zeros(12, dtype=np.int64), 1)

    one, two = run(1), run(2)
    assert aggregates.lower(one).equals(aggregates.lower(two))
    for name in one.column_names:
        if not name.startswith("hll"):  # a sketch holds what it has seen in some order of its own
            assert one.column(name).equals(two.column(name)), name


def test_distinct_counts_do_not_depend_on_how_rows_are_divided():
    generator = np.random.default_rng(6)
    codes = np.repeat(np.arange(4), [100, 2_000, 20_000, 100_000])
    numbers = pa.array(generator.integers(0, 50_000, len(codes)))
    aggregates = Aggregates.of({"n": approx_count_distinct("v", error=0.02)}, pa.schema({"v": pa.int64()}))
    results = [
        aggregates.lower(pieces_of(aggregates, numbers, codes, 4, pieces, generator)).column("n").to_pylist()
        for pieces in (1, 3, 40)
    ]
    assert results[0] == results[1] == results[2]
    for group, found in enumerate(results[0]):
        true = len(set(numbers.filter(pa.array(codes == group)).to_pylist()))
        assert abs(found - true) <= 3 * 0.02 * true


def test_heavy_hitters_keep_their_promise():
    generator = np.random.default_rng(8)
    error, rows = 0.02, 100_000
    # The frequent ones are spread among values that occur once, which is hardest.
    numbers = np.where(
        generator.random(rows) < 0.5, generator.integers(10, rows, rows) * 7, generator.zipf(1.5, rows) % 10
    )
    aggregates = Aggregates.of({"h": heavy_hitters("v", limit=1000, error=error)}, pa.schema({"v": pa.int64()}))
    for pieces in (1, 25):
        state = pieces_of(aggregates, pa.array(numbers), np.zeros(rows, dtype=np.int64), 1, pieces, generator)
        found = aggregates.lower(state).column("h")[0].as_py()
        true = Counter(numbers.tolist())
        for row in found:
            assert row["count"] - row["error"] <= true[row["item"]] <= row["count"]
            assert row["error"] <= error * rows
        missed = {value for value, count in true.items() if count > error * rows} - {row["item"] for row in found}
        assert missed == set()
        assert [row["count"] for row in found] == sorted((row["count"] for row in found), reverse=True)


def test_floats_of_32_bits_stay_so():
    rows = pa.table({"f": pa.array([-0.1, -0.1], pa.float32())})
    asked = {"n": approx_count_distinct("f"), "q": median("f"), "h": heavy_hitters("f")}
    aggregates = Aggregates.of(asked, rows.schema)
    result = aggregates.lower(aggregates.lift(rows, np.zeros(2, dtype=np.int64), 1))
    assert result.schema == aggregates.result_schema
    value = rows.column("f")[0].as_py()
    assert result.to_pylist() == [{"n": 1, "q": value, "h": [{"item": value, "count": 2, "error": 0}]}]


def test_groups_without_values():
    schema = pa.schema({"v": pa.int64()})
    asked = {"d": approx_count_distinct("v"), "q": median("v"), "p": quantile("v", 0.99), "h": heavy_hitters("v")}
    aggregates = Aggregates.of(asked, schema)
    nothing = {"d": 0, "q": None, "p": None, "h": []}
    nulls = pa.table({"v": pa.nulls(3, pa.int64())})
    assert aggregates.lower(aggregates.lift(nulls, np.array([0, 0, 2]), 3)).to_pylist() == [nothing] * 3
    assert aggregates.lower(aggregates.empty(1)).to_pylist() == [nothing]
    assert not aggregates.differential
    assert aggregates.columns_of("q") == aggregates.columns_of("p"), "they share a sketch"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: approx_count_distinct("v", error=1e-6), "error of approx_count_distinct"),
        (lambda: approx_count_distinct("v", error=0), "error of approx_count_distinct"),
        (lambda: heavy_hitters("v", error=-1), "error of heavy_hitters"),
        (lambda: heavy_hitters("v", limit=0), "limit of heavy_hitters"),
        (lambda: quantile("v", 1.1), "not a probability"),
        (lambda: quantile("v", 0.5, error=0.5), "error of quantile"),
    ],
)
def test_accuracies_that_do_not_exist_are_refused(make, message):
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.parametrize("asked", [approx_count_distinct("v"), heavy_hitters("v"), median("v")])
def test_types_that_do_not_fit_are_refused(asked):
    with pytest.raises(SchemaError):
        Aggregates.of({"a": asked}, pa.schema({"v": pa.binary()}))


def test_without_the_library_it_is_said_at_once(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasketches", None)
    with pytest.raises(EnvironmentMissingError, match=r"pip install 'datasketches"):
        Aggregates.of({"a": approx_count_distinct("v")}, pa.schema({"v": pa.int64()}))
    assert sketches.sketchable(pa.int64())
    Aggregates.of({"a": median("v")}, pa.schema({"v": pa.int64()}))  # ours
