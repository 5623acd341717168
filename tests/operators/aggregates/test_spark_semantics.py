"""Types, nulls, NaN, -0.0 and overflow as in Spark SQL (ANSI mode), in cases written by hand."""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import AggregateOverflowError, CheckpointError, OptionError, SchemaError
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

NAN = math.nan


def lowered(numbers, kind, **asked):
    rows = pa.table({"v": pa.array(numbers, kind), "time": pa.array(range(len(numbers)), pa.int64())})
    aggregates = Aggregates.of(asked, rows.schema)
    halves = aggregates.lift(rows, np.arange(len(numbers)) % 2, 2)
    return aggregates.lower(aggregates.combine(halves, np.zeros(2, dtype=np.int64), 1)).to_pylist()[0]


@pytest.mark.parametrize(
    ("kind", "sum_type", "avg_type"),
    [
        (pa.int8(), pa.int64(), pa.float64()),
        (pa.int16(), pa.int64(), pa.float64()),
        (pa.int32(), pa.int64(), pa.float64()),
        (pa.int64(), pa.int64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.float64(), pa.float64(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(20, 2), pa.decimal128(14, 6)),
        (pa.decimal128(38, 10), pa.decimal128(38, 10), pa.decimal128(38, 14)),
        (pa.decimal128(36, 36), pa.decimal128(38, 36), pa.decimal128(38, 38)),
    ],
)
def test_types_of_results(kind, sum_type, avg_type):
    aggregates = Aggregates.of(
        {"sum": sum_("v"), "avg": avg("v"), "min": min_("v"), "n": count("v"), "sd": stddev_samp("v")},
        pa.schema({"v": kind}),
    )
    assert aggregates.result_schema.types == [sum_type, avg_type, kind, pa.int64(), pa.float64()]
    assert aggregates.lower(aggregates.empty(1)).schema == aggregates.result_schema


def test_nulls_are_skipped_except_by_count_of_rows():
    found = lowered(
        [None, 3, None, 5],
        pa.int64(),
        rows=count(),
        n=count("v"),
        sum=sum_("v"),
        avg=avg("v"),
        min=min_("v"),
        any=any_value("v"),
    )
    assert found == {"rows": 4, "n": 2, "sum": 8, "avg": 4.0, "min": 3, "any": 5}
    found = lowered(
        [None, None], pa.int64(), n=count("v"), sum=sum_("v"), avg=avg("v"), max=max_("v"), sd=stddev_pop("v")
    )
    assert found == {"n": 0, "sum": None, "avg": None, "max": None, "sd": None}


def test_first_and_last_may_be_null_unless_nulls_are_ignored():
    found = lowered(
        [None, 1, 2, None],
        pa.int64(),
        first=first("v", "time"),
        last=last("v", "time"),
        first_valid=first("v", "time", ignore_nulls=True),
        last_valid=last("v", "time", ignore_nulls=True),
        collect=collect("v", "time", limit=5),
    )
    assert found == {"first": None, "last": None, "first_valid": 1, "last_valid": 2, "collect": [1, 2]}


def test_one_value_has_no_sample_variance():
    assert lowered([4], pa.int32(), pop=var_pop("v"), samp=var_samp("v"), sd=stddev_pop("v"), sds=stddev_samp("v")) == {
        "pop": 0.0,
        "samp": None,
        "sd": 0.0,
        "sds": None,
    }
    assert math.isnan(lowered([NAN], pa.float64(), pop=var_pop("v"))["pop"])
    assert math.isnan(lowered([math.inf], pa.float64(), pop=var_pop("v"))["pop"])


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_the_greatest_number(kind):
    found = lowered([1.0, NAN, -math.inf, math.inf], kind, min=min_("v"), max=max_("v"), sum=sum_("v"))
    assert found["min"] == -math.inf
    assert math.isnan(found["max"])
    assert math.isnan(found["sum"])
    negative_nan = -np.array([NAN])
    assert lowered([*negative_nan.tolist(), 3.0], kind, min=min_("v"))["min"] == 3.0
    assert math.isnan(lowered([NAN, None], kind, min=min_("v"))["min"])


def test_negative_zero_equals_zero():
    found = lowered([0.0, -0.0], pa.float64(), min=min_("v"), max=max_("v"), sum=sum_("v"))
    assert found == {"min": 0.0, "max": 0.0, "sum": 0.0}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_integers_that_does_not_fit_is_an_error(sign):
    edge = 2**63 - 1 if sign > 0 else -(2**63)
    assert lowered([edge], pa.int64(), sum=sum_("v")) == {"sum": edge}
    with pytest.raises(AggregateOverflowError, match=rf"sum\(v\) is {edge + sign}, which int64"):
        lowered([edge, sign], pa.int64(), sum=sum_("v"))
    assert lowered([edge, edge], pa.int64(), avg=avg("v"))["avg"] == float(edge)  # the mean fits


def test_a_sum_may_leave_the_range_on_its_way():
    edge = 2**63 - 1
    assert lowered([edge, edge, edge, -edge, -edge], pa.int64(), sum=sum_("v")) == {"sum": edge}


def test_a_sum_of_decimals_is_exact_or_an_error():
    least, nines = Decimal("0.0000000001"), Decimal("9" * 18 + "." + "9" * 10)
    assert lowered([nines, least, -nines, nines], pa.decimal128(28, 10), sum=sum_("v")) == {"sum": Decimal(10**18)}
    greatest, kind = Decimal("9" * 38), pa.decimal128(38, 0)
    assert lowered([greatest, greatest, Decimal(1), greatest.copy_negate(), Decimal(-1)], kind, sum=sum_("v")) == {
        "sum": greatest
    }
    with pytest.raises(AggregateOverflowError, match=r"sum\(v\) is 1(0{38}), which decimal128\(38, 0\)"):
        lowered([greatest, Decimal(1)], kind, sum=sum_("v"))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_mean_of_decimals_is_rounded_half_up(sign):
    found = lowered([sign * Decimal("0.01")] + [Decimal("0.00")] * 7, pa.decimal128(10, 2), avg=avg("v"))
    assert found["avg"] == sign * Decimal("0.001250")
    found = lowered([sign * Decimal(1)] + [Decimal(0)] * 63, pa.decimal128(1, 0), avg=avg("v"))
    assert found["avg"] == sign * Decimal("0.0156")  # 0.015625
    found = lowered([sign * Decimal(1)] + [Decimal(0)] * 31, pa.decimal128(1, 0), avg=avg("v"))
    assert found["avg"] == sign * Decimal("0.0313")  # 0.03125


def test_strings_are_compared_by_their_bytes():
    assert lowered(["b", "B", "é", "z", "\U0001f600", "￿"], pa.string(), min=min_("v"), max=max_("v")) == {
        "min": "B",
        "max": "\U0001f600",
    }


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (sum_("v"), pa.string()),
        (sum_("v"), pa.bool_()),
        (avg("v"), pa.timestamp("us")),
        (stddev_pop("v"), pa.date32()),
        (min_("v"), pa.list_(pa.int64())),
        (first("v", "o"), pa.int64()),
        (max_("w"), pa.int64()),
    ],
)
def test_what_does_not_fit_is_refused_before_there_are_rows(asked, kind):
    with pytest.raises(SchemaError):
        Aggregates.of({"r": asked}, pa.schema({"v": kind, "o": pa.map_(pa.string(), pa.int64())}))


def test_rows_without_a_place_in_the_order_are_refused():
    rows = pa.table({"v": [1, 2], "time": pa.array([1, None], pa.int64())})
    aggregates = Aggregates.of({"f": first("v", "time")}, rows.schema)
    with pytest.raises(SchemaError, match="1 rows have no time"):
        aggregates.lift(rows, np.zeros(2, dtype=np.int64), 1)


def test_nothing_to_aggregate_and_codes_that_are_no_groups_are_refused():
    with pytest.raises(OptionError, match="nothing to aggregate"):
        Aggregates.of({}, pa.schema({}))
    with pytest.raises(OptionError, match="limit"):
        collect("v", "time", limit=0)
    with pytest.raises(OptionError, match="no order"):
        Aggregates.of({"f": first("v", [])}, pa.schema({"v": pa.int64()}))
    rows = pa.table({"v": [1, 2]})
    aggregates = Aggregates.of({"n": count()}, rows.schema)
    with pytest.raises(ValueError, match="codes from 0 to 2"):
        aggregates.lift(rows, np.array([0, 2]), 2)
    with pytest.raises(ValueError, match="1 codes for 2 rows"):
        aggregates.lift(rows, np.array([0]), 2)


def test_what_several_aggregates_need_is_kept_once_and_its_names_are_stable():
    schema = pa.schema({"v": pa.float64(), "time": pa.int64()})
    asked = {
        "n": count("v"),
        "sum": sum_("v"),
        "avg": avg("v"),
        "var": var_pop("v"),
        "sd": stddev_samp("v"),
        "min": min_("v"),
        "any": any_value("v"),
        "max": max_("v"),
        "last": last("v", "time"),
    }
    aggregates = Aggregates.of(asked, schema)
    # These are stored: a change of names, types or meaning needs another version number.
    assert aggregates.state_schema == pa.schema(
        {
            "count@1(v).rows": pa.int64(),
            "float_sum@1(v).high": pa.float64(),
            "float_sum@1(v).low": pa.float64(),
            "float_sum@1(v).positive": pa.int64(),
            "float_sum@1(v).negative": pa.int64(),
            "squares@1(v).high": pa.float64(),
            "squares@1(v).low": pa.float64(),
            "squares@1(v).huge": pa.int64(),
            "min@1(v).value": pa.float64(),
            "max@1(v).value": pa.float64(),
            "last@1(v; by time).value": pa.float64(),
            "last@1(v; by time).by time": pa.int64(),
        }
    )
    assert aggregates.inputs == ("v", "time")
    assert aggregates.size_of(aggregates.empty(10)).columns == 12
    exact = Aggregates.of(
        {"s": sum_("i"), "a": avg("i"), "d": sum_("d"), "n": count()},
        pa.schema({"i": pa.int32(), "d": pa.decimal128(9, 3)}),
    )
    assert exact.state_schema == pa.schema(
        {
            "count@1(i).rows": pa.int64(),
            "sum@1(i).sum": pa.decimal128(38, 0),
            "count@1(d).rows": pa.int64(),
            "sum@1(d).sum": pa.decimal256(76, 3),
            "rows@1().rows": pa.int64(),
        }
    )


def test_states_survive_a_frame_and_other_columns_beside_them():
    rows = pa.table(
        {
            "v": [1.5, None, 2.5],
            "d": pa.array([Decimal("1.20"), Decimal("3.40"), None], pa.decimal128(9, 2)),
            "time": [1, 2, 3],
        }
    )
    aggregates = Aggregates.of(
        {"a": avg("v"), "s": sum_("d"), "c": collect("d", "time", limit=2), "l": last("v", "time"), "m": max_("d")},
        rows.schema,
    )
    state = aggregates.lift(rows, np.array([0, 1, 0]), 2).append_column("key", pa.array(["x", "y"]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, state.schema) as writer:
        writer.write_table(state)
    back = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert aggregates.lower(back).equals(aggregates.lower(state))
    # Slices have offsets, concatenated tables have chunks, filtered ones neither.
    apart = pa.concat_tables([back.slice(1, 1), back.slice(0, 1)])
    assert aggregates.lower(aggregates.combine(apart, np.array([1, 0]), 2)).equals(aggregates.lower(state))
    assert aggregates.lower(back.filter(pa.array([False, True]))).equals(aggregates.lower(state).slice(1))


def test_a_state_of_other_aggregates_is_refused():
    schema = pa.schema({"v": pa.int64(), "w": pa.int64()})
    state = Aggregates.of({"n": count("v")}, schema).empty(1)
    with pytest.raises(CheckpointError, match="sum@1"):
        Aggregates.of({"s": sum_("v")}, schema).lower(state)
