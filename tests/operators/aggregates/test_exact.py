"""Exact aggregates: against plain Python, however rows are divided, ordered and taken out again; errors are Spark's."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import AggregateOverflowError, CheckpointError, OptionError, SchemaError
from upstream.core.rows.frames import from_frame, to_frame
from upstream.operators.aggregates import exact, floats
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
from upstream.operators.aggregates.groups import Groups

from . import oracle
from .oracle import SCHEMA, by_time, grouped_rows, in_one_pass, in_pieces, same, values

GROUPS = 5  # the rows are of four
ORDER = ["time", "seq"]


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


@given(grouped_rows(), st.data())
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


@given(grouped_rows(), st.data())
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


@given(grouped_rows(), st.data())
def test_least_and_greatest(grouped, data):
    names = [name for name in SCHEMA.names if name not in ORDER]
    asked = {f"min {name}": min_(name) for name in names} | {f"max {name}": max_(name) for name in names}
    asked["any"] = any_value("s")

    def expected(group):
        out = {}
        for name in names:
            found = values(grouped, group, name)
            if name == "s":  # strings are compared by their bytes
                found = [value.encode() for value in found]
            for end, value in (("min", oracle.least(found)), ("max", oracle.greatest(found))):
                out[f"{end} {name}"] = value.decode() if name == "s" and value is not None else value, 0
        return out | {"any": out["max s"]}

    _check(Aggregates.of(asked, SCHEMA), grouped, data, expected)


@given(grouped_rows(), st.data(), st.integers(1, 4))
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


def lowered(numbers, kind, **asked):
    rows = pa.table({"v": pa.array(numbers, kind), "time": pa.array(range(len(numbers)), pa.int64())})
    aggregates = Aggregates.of(asked, rows.schema)
    halves = aggregates.lift(rows, np.arange(len(numbers)) % 2, 2)
    return aggregates.lower(aggregates.combine(halves, np.zeros(2, dtype=np.int64), 1)).to_pylist()[0]


@pytest.mark.parametrize(
    ("kind", "sum_type", "avg_type"),
    [
        *((kind, pa.int64(), pa.float64()) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
        *((kind, pa.float64(), pa.float64()) for kind in (pa.float32(), pa.float64())),
        (pa.decimal128(10, 2), pa.decimal128(20, 2), pa.decimal128(14, 6)),
        (pa.decimal128(38, 10), pa.decimal128(38, 10), pa.decimal128(38, 14)),
        (pa.decimal128(36, 36), pa.decimal128(38, 36), pa.decimal128(38, 38)),
    ],
)
def test_types_of_results(kind, sum_type, avg_type):
    asked = {"sum": sum_("v"), "avg": avg("v"), "min": min_("v"), "n": count("v"), "sd": stddev_samp("v")}
    aggregates = Aggregates.of(asked, pa.schema({"v": kind}))
    assert aggregates.result_schema.types == [sum_type, avg_type, kind, pa.int64(), pa.float64()]
    assert aggregates.lower(aggregates.empty(1)).schema == aggregates.result_schema


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_the_greatest_number(kind):
    found = lowered([1.0, math.nan, -math.inf, math.inf], kind, min=min_("v"), max=max_("v"))
    assert found["min"] == -math.inf
    assert math.isnan(found["max"])
    negative_nan = -np.array([math.nan])
    assert lowered([*negative_nan.tolist(), 3.0], kind, min=min_("v"))["min"] == 3.0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_integers_that_does_not_fit_is_an_error(sign):
    edge = 2**63 - 1 if sign > 0 else -(2**63)
    with pytest.raises(AggregateOverflowError, match=rf"sum\(v\) is {edge + sign}, which BIGINT"):
        lowered([edge, sign], pa.int64(), sum=sum_("v"))
    assert lowered([edge, sign, -sign], pa.int64(), sum=sum_("v")) == {"sum": edge}, "it leaves the range on its way"
    assert lowered([edge, edge], pa.int64(), avg=avg("v"))["avg"] == float(edge)  # the mean fits


def test_a_sum_of_decimals_is_exact_or_an_error():
    least, nines = Decimal("0.0000000001"), Decimal("9" * 18 + "." + "9" * 10)
    assert lowered([nines, least, -nines, nines], pa.decimal128(28, 10), sum=sum_("v")) == {"sum": Decimal(10**18)}
    greatest, kind = Decimal("9" * 38), pa.decimal128(38, 0)
    assert lowered([greatest, greatest, Decimal(1), greatest.copy_negate(), Decimal(-1)], kind, sum=sum_("v")) == {
        "sum": greatest
    }
    with pytest.raises(AggregateOverflowError, match=r"sum\(v\) is 1(0{38}), which DECIMAL\(38,0\)"):
        lowered([greatest, Decimal(1)], kind, sum=sum_("v"))


def test_the_least_array_is_the_first_in_sparks_order():
    arrays = [[2], [1, None], [1], [1, -5]]
    assert lowered(arrays, pa.list_(pa.int64()), least=min_("v"), most=max_("v")) == {"least": [1], "most": [2]}


@pytest.mark.parametrize("sign", [1, -1])
def test_the_mean_of_decimals_is_rounded_half_up(sign):
    for rows, mean in ((8, "0.1250"), (64, "0.0156"), (32, "0.0313")):  # 1 / 64 is 0.015625, and 1 / 32 is 0.03125
        found = lowered([sign * Decimal(1)] + [Decimal(0)] * (rows - 1), pa.decimal128(1, 0), avg=avg("v"))
        assert found["avg"] == sign * Decimal(mean)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (sum_("v"), pa.string()),
        (sum_("v"), pa.bool_()),
        (avg("v"), pa.timestamp("us")),
        (stddev_pop("v"), pa.date32()),
        (min_("v"), pa.map_(pa.string(), pa.int64())),
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
    numbers = [count, sum_, avg, var_pop, stddev_samp, min_, any_value, max_]
    asked = {function.__name__: function("v") for function in numbers} | {"last": last("v", "time")}
    aggregates = Aggregates.of(asked, schema)
    # These are stored: a change of names, types or meaning needs another version number.
    whole, double = pa.int64(), pa.float64()
    assert aggregates.state_schema == pa.schema(
        {
            "count@1(v).rows": whole,
            **{f"float_sum@1(v).{part}": double for part in ("high", "low")},
            **{f"float_sum@1(v).{part}": whole for part in ("positive", "negative")},
            **{f"squares@1(v).{part}": double for part in ("high", "low")},
            "squares@1(v).huge": whole,
            "min@1(v).value": double,
            "max@1(v).value": double,
            "last@1(v; by time).value": double,
            "last@1(v; by time).by time": whole,
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
            "count@1(i).rows": whole,
            "sum@1(i).sum": pa.decimal128(38, 0),
            "count@1(d).rows": whole,
            "sum@1(d).sum": pa.decimal256(76, 3),
            "rows@1().rows": whole,
        }
    )
    with pytest.raises(CheckpointError, match="sum@1"):
        exact.lower(aggregates.empty(1))


def test_states_survive_a_frame_and_other_columns_beside_them():
    decimals = pa.array([Decimal("1.20"), Decimal("3.40"), None], pa.decimal128(9, 2))
    rows = pa.table({"v": [1.5, None, 2.5], "d": decimals, "time": [1, 2, 3]})
    asked = {"a": avg("v"), "s": sum_("d"), "c": collect("d", "time", limit=2), "l": last("v", "time"), "m": max_("d")}
    aggregates = Aggregates.of(asked, rows.schema)
    state = aggregates.lift(rows, np.array([0, 1, 0]), 2).append_column("key", pa.array(["x", "y"]))
    back = from_frame(to_frame(state))
    assert aggregates.lower(back).equals(aggregates.lower(state))
    # Slices have offsets, concatenated tables have chunks, filtered ones neither.
    apart = pa.concat_tables([back.slice(1, 1), back.slice(0, 1)])
    assert aggregates.lower(aggregates.combine(apart, np.array([1, 0]), 2)).equals(aggregates.lower(state))
    assert aggregates.lower(back.filter(pa.array([False, True]))).equals(aggregates.lower(state).slice(1))


WIDE, LONG = pa.decimal256(76, 0), pa.decimal128(38, 0)


def integers(limbs):
    return [sum(int(limb[row]) << 32 * place for place, limb in enumerate(limbs)) for row in range(len(limbs[0]))]


def decimals(values, kind):
    return pa.array([Decimal(value) for value in values], kind)


@pytest.mark.parametrize("value", [2**62 - 1, -(2**62) + 1, 2**33 - 1])
def test_more_rows_than_doubles_can_add(value):
    rows = 2_500_000  # of 32 bits each, beyond 2^53
    found = exact.summed(pa.array(np.full(rows, value)), Groups(np.zeros(rows, dtype=np.int64), 1))
    assert integers(found) == [rows * value]


_NUMBERS = st.floats(-1e100, 1e100, allow_subnormal=False)


@given(st.lists(st.tuples(st.integers(0, 2), _NUMBERS), min_size=1, max_size=60))
def test_sums_have_a_hundred_bits(rows):
    codes = np.array([code for code, _ in rows])
    high, low = floats.summed(np.array([number for _, number in rows]), Groups(codes, 4))
    for group in range(4):
        mine = [Fraction(number) for code, number in rows if code == group]
        error = abs(Fraction(high[group]) + Fraction(low[group]) - sum(mine))
        assert error <= Fraction(2) ** -95 * max(map(abs, mine), default=0) + Fraction(5e-324)
        assert high[group] == high[group] + low[group]


def state_of(aggregates, *values):
    """The state of some rows of one group, by column."""
    rows = pa.Table.from_pylist([value if isinstance(value, dict) else {"f": value} for value in values], SCHEMA)
    return aggregates.lift(rows, np.zeros(len(values), dtype=np.int64), 1)


def together(aggregates, *states):
    return aggregates.combine(pa.concat_tables(states), np.zeros(len(states), dtype=np.int64), 1)


RETRACTED = {
    "rows": count(),
    "n": count("s"),
    "i": sum_("i"),
    "d": sum_("d"),
    "wide": sum_("wide"),
    "mean": avg("wide"),
}
FLOATS = {"sum": sum_("f"), "avg": avg("f"), "var": var_pop("f"), "n": count("f")}


@given(grouped_rows(), grouped_rows())
def test_retracting_exact_aggregates_leaves_the_very_same_state(these, those):
    aggregates = Aggregates.of(RETRACTED, SCHEMA)
    a, b = (in_one_pass(aggregates, rows, GROUPS) for rows in (these, those))
    both = aggregates.combine(pa.concat_tables([a, b]), np.tile(np.arange(GROUPS), 2), GROUPS)
    assert aggregates.retract(both, b).equals(a)
    assert aggregates.retract(both, a).equals(b)


@given(grouped_rows(), grouped_rows())
def test_retracting_doubles(these, those):
    aggregates = Aggregates.of(FLOATS, SCHEMA)
    a, b = (in_one_pass(aggregates, rows, GROUPS) for rows in (these, those))
    both = aggregates.combine(pa.concat_tables([a, b]), np.tile(np.arange(GROUPS), 2), GROUPS)
    left = aggregates.lower(aggregates.retract(both, b)).to_pylist()
    for group, found in enumerate(left):
        mine = values(these, group, "f")
        largest = max((abs(v) for v in mine + values(those, group, "f") if math.isfinite(v)), default=0)
        assert found["n"] == len(mine)
        assert same(found["sum"], oracle.total(mine), largest * 2.0**-85)
        assert same(found["avg"], oracle.mean(mine), largest * 2.0**-85)
        if largest <= 2.0**450:
            assert same(found["var"], oracle.variance(mine, False), len(these + those) * (largest * 2.0**-40) ** 2)


def test_a_window_that_slides_a_thousand_panes_does_not_drift():
    generator = np.random.default_rng(7)
    panes, per_pane, width = 1000, 20, 8
    data = generator.normal(1000.0, 0.001, (panes, per_pane))
    data[::2] *= 1e6  # what was in the window before is much larger than what is left
    data[-3 * width :] = generator.normal(1000.0, 0.001, (3 * width, per_pane))
    aggregates = Aggregates.of({"sum": sum_("f"), "avg": avg("f"), "sd": stddev_samp("f")}, SCHEMA)
    states = [state_of(aggregates, *pane.tolist()) for pane in data]
    window = aggregates.empty(1)
    for number, state in enumerate(states):
        window = together(aggregates, window, state)
        if number >= width:
            window = aggregates.retract(window, states[number - width])
    found = aggregates.lower(window).to_pylist()[0]
    left = data[-width:].ravel().tolist()
    assert found["sum"] == pytest.approx(oracle.total(left), rel=1e-15)
    assert found["avg"] == pytest.approx(oracle.mean(left), rel=1e-15)
    # Σ v² was 10^20, and half the digits of a pair are left of 160 · 10^-6.
    assert found["sd"] == pytest.approx(math.sqrt(oracle.variance(left, True)), rel=1e-6)


def test_nan_and_infinities_leave_with_their_rows():
    aggregates = Aggregates.of({"sum": sum_("f"), "avg": avg("f"), "var": var_pop("f")}, SCHEMA)

    def sums(found):
        return aggregates.lower(found).column("sum").to_pylist()

    parts = ([1.0, 2.0], [math.nan], [math.inf, 5.0], [-math.inf])
    plain, nan, plus, minus = (state_of(aggregates, *numbers) for numbers in parts)
    everything = together(aggregates, plain, nan, plus, minus)
    assert math.isnan(sums(everything)[0])
    without_nan = aggregates.retract(everything, nan)
    assert math.isnan(sums(without_nan)[0])  # inf - inf
    without_minus = aggregates.retract(without_nan, minus)
    assert sums(without_minus) == [math.inf]
    left = aggregates.lower(aggregates.retract(without_minus, plus))
    assert left.to_pylist() == [{"sum": 3.0, "avg": 1.5, "var": 0.25}]
    assert sums(aggregates.retract(without_nan, plus)) == [-math.inf]


def test_a_sum_that_overflowed_comes_back():
    aggregates = Aggregates.of({"sum": sum_("f"), "var": var_samp("f"), "i": sum_("i")}, SCHEMA)
    parts = ((1.7e308, 2**63 - 1), (1.7e308, 2**63 - 1), (1.0, 1), (4.0, 3))
    large, more, one, other = (state_of(aggregates, {"f": f, "i": i}) for f, i in parts)
    left = aggregates.retract(aggregates.retract(together(aggregates, large, more, one, other), large), more)
    assert aggregates.lower(left).to_pylist() == [{"sum": 5.0, "var": 4.5, "i": 4}]


def test_numbers_whose_squares_overflow():
    aggregates = Aggregates.of({"var": var_samp("f"), "pop": var_pop("f")}, SCHEMA)

    def lowered(*numbers):
        return aggregates.lower(state_of(aggregates, *numbers)).to_pylist()[0]

    assert lowered(1e200, 2e200) == {"var": math.inf, "pop": math.inf}
    assert lowered(1e200) == {"var": None, "pop": 0.0}
    assert math.isnan(lowered(1e200, math.nan)["var"])


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e9])
def test_variance_far_from_zero(offset):
    numbers = (np.random.default_rng(3).normal(size=5000) + offset).tolist()
    aggregates = Aggregates.of({"var": var_samp("v")}, pa.schema({"v": pa.float64()}))
    halves = aggregates.lift(pa.table({"v": numbers}), np.arange(5000) % 2, 2)
    found = aggregates.lower(aggregates.combine(halves, np.array([0, 0]), 1)).column("var")[0].as_py()
    assert found == pytest.approx(oracle.variance(numbers, True), rel=1e-13)


def test_a_sum_of_doubles_does_not_depend_on_the_order_of_the_rows():
    generator = np.random.default_rng(5)
    numbers = generator.normal(size=200_000) * 10.0 ** generator.integers(-8, 8, 200_000)
    codes = generator.integers(0, 3, len(numbers))
    aggregates = Aggregates.of({"sum": sum_("v")}, pa.schema({"v": pa.float64()}))
    exact = [float(sum(map(Fraction, numbers[codes == group].tolist()))) for group in range(3)]
    for _ in range(3):
        order = generator.permutation(len(numbers))
        found = aggregates.lower(aggregates.lift(pa.table({"v": numbers[order]}), codes[order], 3))
        assert found.column("sum").to_pylist() == exact


@pytest.mark.parametrize("asked", [max_("i"), first("i", "time")])
def test_what_cannot_be_retracted_is_reported(asked):
    aggregates = Aggregates.of({"n": count(), "other": asked}, SCHEMA)
    assert not aggregates.differential
    assert Aggregates.of({"n": count()}, SCHEMA).differential
    state = aggregates.empty(1)
    with pytest.raises(OptionError, match=r"(max|first)@1.*cannot be retracted"):
        aggregates.retract(state, state)


def test_more_than_there_is_cannot_be_retracted():
    aggregates = Aggregates.of({"n": count()}, SCHEMA)
    with pytest.raises(ValueError, match="rows that the other lacks"):
        aggregates.retract(aggregates.empty(1), state_of(aggregates, 1.0))
