"""Exact aggregates are what plain Python says, group by group, however rows are divided and in whatever order they
come.
"""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.functions import (
    any_value,
    avg,
    collect,
    count,
    first,
    last,
    max_,
    min_,
    stddev_pop,
    stddev_samp,
    sum_,
    var_pop,
    var_samp,
)

from . import oracle
from .oracle import SCHEMA, by_time, grouped_rows, in_one_pass, in_pieces, same, values

GROUPS = 5  # the rows are of four
ORDER = ["time", "seq"]

_any_split = st.data()


def _check(aggregates, grouped, data, expected):
    pieces = data.draw(st.lists(st.integers(0, 3), min_size=len(grouped), max_size=len(grouped)))
    shuffle = data.draw(st.randoms(use_true_random=False))
    whole = aggregates.lower(in_one_pass(aggregates, grouped, GROUPS))
    parts = aggregates.lower(in_pieces(aggregates, grouped, GROUPS, pieces, shuffle))
    assert whole.schema == parts.schema == aggregates.result_schema
    for group in range(GROUPS):
        for name, (value, within) in expected(group).items():
            for found in (whole, parts):
                result = found.column(name)[group].as_py()
                assert same(result, value, within), f"{name} of group {group} is {result}, not {value}"


@given(grouped_rows(), _any_split)
def test_counts_and_sums(grouped, data):
    numbers = ["i", "small", "d", "wide", "f"]
    asked = {"rows": count()}
    for name in numbers:
        asked |= {f"count {name}": count(name), f"sum {name}": sum_(name), f"avg {name}": avg(name)}

    def expected(group):
        out = {"rows": (sum(code == group for code, _ in grouped), 0)}
        for name in numbers:
            found = values(grouped, group, name)
            # What is cancelled is lost beyond 2^-85 of the largest summand.
            lost = max((abs(v) for v in found if math.isfinite(v)), default=0) if name == "f" else 0
            out[f"count {name}"] = len(found), 0
            out[f"sum {name}"] = oracle.total(found), lost * 2.0**-85
            out[f"avg {name}"] = oracle.mean(found), lost * 2.0**-85
        return out

    _check(Aggregates.of(asked, SCHEMA), grouped, data, expected)


def test_variance_of_decimals_is_that_of_doubles():
    grouped = [(0, {**dict.fromkeys(SCHEMA.names), "d": Decimal(text)}) for text in ("188509.29", "188869.33")]
    aggregates = Aggregates.of({"v": var_pop("d")}, SCHEMA)
    found = aggregates.lower(in_one_pass(aggregates, grouped, GROUPS)).column("v")[0].as_py()
    assert found == pytest.approx(180.02**2, rel=1e-12)


@given(grouped_rows(), _any_split)
def test_variance(grouped, data):
    functions = {"var_pop": var_pop, "var_samp": var_samp, "stddev_pop": stddev_pop, "stddev_samp": stddev_samp}
    names = ["small", "d", "f"]
    asked = {f"{name} {column}": function(column) for name, function in functions.items() for column in names}

    def expected(group):
        out = {}
        for column in names:
            found = values(grouped, group, column)
            largest = max((abs(float(v)) for v in found if math.isfinite(v)), default=0)
            if largest > 2.0**450 and len(found) > 1 and all(map(math.isfinite, found)):
                continue  # test_numbers_whose_squares_overflow
            for name in functions:
                value = oracle.variance(found, "samp" in name)
                # Squares below 1e-290 have few digits left, or none.
                lost = max(len(found) * (min(largest, 1e140) * 2.0**-40) ** 2, 1e-290)
                spread = None if value is None else math.sqrt(value)
                # A decimal is rounded to a double, here and in the oracle, each in its own way.
                rounded = largest * 2.0**-51 if column == "d" else 0.0
                if "stddev" in name:
                    value, lost = spread, math.sqrt(lost) + rounded
                else:
                    lost += 2 * (spread or 0.0) * rounded
                out[f"{name} {column}"] = value, lost
        return out

    _check(Aggregates.of(asked, SCHEMA), grouped, data, expected)


@given(grouped_rows(), _any_split)
def test_least_and_greatest(grouped, data):
    names = [name for name in SCHEMA.names if name not in ORDER]
    asked = {f"min {name}": min_(name) for name in names} | {f"max {name}": max_(name) for name in names}
    asked["any"] = any_value("s")

    def expected(group):
        out = {"any": (oracle.greatest([s.encode() for s in values(grouped, group, "s")]), 0)}
        out["any"] = None if out["any"][0] is None else out["any"][0].decode(), 0
        for name in names:
            found = values(grouped, group, name)
            if name == "s":  # strings are compared by their bytes
                found = [value.encode() for value in found]
            for end, value in (("min", oracle.least(found)), ("max", oracle.greatest(found))):
                out[f"{end} {name}"] = value.decode() if name == "s" and value is not None else value, 0
        return out

    _check(Aggregates.of(asked, SCHEMA), grouped, data, expected)


@given(grouped_rows(), _any_split, st.integers(1, 4))
def test_first_last_and_collect(grouped, data, limit):
    names = [name for name in SCHEMA.names if name not in ORDER]
    asked = {}
    for name in names:
        asked |= {f"first {name}": first(name, ORDER), f"last {name}": last(name, ORDER)}
        asked |= {
            f"first valid {name}": first(name, ORDER, ignore_nulls=True),
            f"last valid {name}": last(name, ORDER, ignore_nulls=True),
            f"collect {name}": collect(name, ORDER, limit=limit),
        }

    def expected(group):
        out = {}
        for name in names:
            found = [row[name] for row in by_time(grouped, group)]
            valid = [value for value in found if value is not None]
            out[f"first {name}"] = found[0] if found else None, 0
            out[f"last {name}"] = found[-1] if found else None, 0
            out[f"first valid {name}"] = valid[0] if valid else None, 0
            out[f"last valid {name}"] = valid[-1] if valid else None, 0
            if name != "f":  # a list with NaN equals no other
                out[f"collect {name}"] = valid[:limit], 0
        return out

    _check(Aggregates.of(asked, SCHEMA), grouped, data, expected)


def test_collect_keeps_nan_and_the_order_may_be_a_string():
    rows = pa.table({"v": [1.0, math.nan, 3.0], "source": ["b", "a", "c"]})
    aggregates = Aggregates.of({"c": collect("v", "source", limit=2), "l": last("v", "source")}, rows.schema)
    result = aggregates.lower(aggregates.lift(rows, np.zeros(3, dtype=np.int64), 1)).to_pylist()[0]
    assert math.isnan(result["c"][0])
    assert result["c"][1:] == [1.0]
    assert result["l"] == 3.0


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("a", pa.string())])])
def test_first_and_collect_take_nested_values(kind):
    value = [1, 2] if pa.types.is_list(kind) else {"a": "x"}
    rows = pa.table({"v": pa.array([None, value, value], kind), "time": [1, 2, 3]})
    aggregates = Aggregates.of(
        {"f": first("v", "time", ignore_nulls=True), "l": last("v", "time"), "c": collect("v", "time", limit=9)},
        rows.schema,
    )
    half = aggregates.lift(rows, np.array([0, 0, 0]), 1)
    both = aggregates.combine(pa.concat_tables([half, aggregates.empty(1)]), np.array([0, 0]), 1)
    assert aggregates.lower(both).to_pylist() == [{"f": value, "l": value, "c": [value, value]}]


def test_groups_without_rows():
    asked = {
        "n": count(),
        "nv": count("i"),
        "sum": sum_("i"),
        "dsum": sum_("d"),
        "fsum": sum_("f"),
        "avg": avg("wide"),
        "var": var_pop("f"),
        "min": min_("s"),
        "first": first("s", ORDER),
        "collect": collect("s", ORDER, limit=3),
    }
    aggregates = Aggregates.of(asked, SCHEMA)
    nothing = dict.fromkeys(asked) | {"n": 0, "nv": 0, "collect": []}
    for state in (aggregates.empty(2), aggregates.lift(SCHEMA.empty_table(), np.empty(0, dtype=np.int64), 2)):
        assert state.schema == aggregates.state_schema
        assert aggregates.lower(state).to_pylist() == [nothing, nothing]
    assert aggregates.lower(aggregates.empty(0)).num_rows == 0
