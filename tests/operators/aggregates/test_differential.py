"""What is added can be taken away again: windows that add a pane and subtract a pane stay right."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from upstream.conf.errors import OptionError
from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.functions import (
    avg,
    count,
    first,
    max_,
    stddev_samp,
    sum_,
    var_pop,
    var_samp,
)

from . import oracle
from .oracle import SCHEMA, grouped_rows, in_one_pass, same, values

GROUPS = 4
EXACT = {"rows": count(), "n": count("s"), "i": sum_("i"), "d": sum_("d"), "wide": sum_("wide"), "mean": avg("wide")}
FLOATS = {"sum": sum_("f"), "avg": avg("f"), "var": var_pop("f"), "n": count("f")}


@given(grouped_rows(), grouped_rows())
def test_retracting_exact_aggregates_leaves_the_very_same_state(these, those):
    aggregates = Aggregates.of(EXACT, SCHEMA)
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
    aggregates = Aggregates.of(
        {"sum": sum_("v"), "avg": avg("v"), "sd": stddev_samp("v")}, pa.schema({"v": pa.float64()})
    )
    states = [aggregates.lift(pa.table({"v": pane}), np.zeros(per_pane, dtype=np.int64), 1) for pane in data]
    window = aggregates.empty(1)
    for number, state in enumerate(states):
        window = aggregates.combine(pa.concat_tables([window, state]), np.zeros(2, dtype=np.int64), 1)
        if number >= width:
            window = aggregates.retract(window, states[number - width])
    found = aggregates.lower(window).to_pylist()[0]
    left = data[-width:].ravel().tolist()
    assert found["sum"] == pytest.approx(oracle.total(left), rel=1e-15)
    assert found["avg"] == pytest.approx(oracle.mean(left), rel=1e-15)
    # Σ v² was 10^20, and half the digits of a pair are left of 160 · 10^-6.
    assert found["sd"] == pytest.approx(math.sqrt(oracle.variance(left, True)), rel=1e-6)


def test_nan_and_infinities_leave_with_their_rows():
    aggregates = Aggregates.of({"sum": sum_("v"), "avg": avg("v"), "var": var_pop("v")}, pa.schema({"v": pa.float64()}))

    def state(*numbers):
        return aggregates.lift(
            pa.table({"v": pa.array(numbers, pa.float64())}), np.zeros(len(numbers), dtype=np.int64), 1
        )

    def together(*states):
        return aggregates.combine(pa.concat_tables(states), np.zeros(len(states), dtype=np.int64), 1)

    def sums(found):
        return aggregates.lower(found).column("sum").to_pylist()

    plain, nan, plus, minus = state(1.0, 2.0), state(math.nan), state(math.inf, 5.0), state(-math.inf)
    everything = together(plain, nan, plus, minus)
    assert math.isnan(sums(everything)[0])
    without_nan = aggregates.retract(everything, nan)
    assert math.isnan(sums(without_nan)[0])  # inf - inf
    without_minus = aggregates.retract(without_nan, minus)
    assert sums(without_minus) == [math.inf]
    assert aggregates.lower(aggregates.retract(without_minus, plus)).to_pylist() == [
        {"sum": 3.0, "avg": 1.5, "var": 0.25}
    ]
    assert sums(aggregates.retract(without_nan, plus)) == [-math.inf]


def test_a_sum_that_overflowed_comes_back():
    aggregates = Aggregates.of({"sum": sum_("f"), "var": var_samp("f"), "i": sum_("i")}, SCHEMA)

    def state(f, i):
        return aggregates.lift(pa.Table.from_pylist([{"f": f, "i": i}], SCHEMA), np.zeros(1, dtype=np.int64), 1)

    large, more, one = state(1.7e308, 2**63 - 1), state(1.7e308, 2**63 - 1), state(1.0, 1)
    other = state(4.0, 3)
    everything = aggregates.combine(pa.concat_tables([large, more, one, other]), np.zeros(4, dtype=np.int64), 1)
    assert aggregates.lower(aggregates.retract(aggregates.retract(everything, large), more)).to_pylist() == [
        {"sum": 5.0, "var": 4.5, "i": 4}
    ]


def test_numbers_whose_squares_overflow():
    aggregates = Aggregates.of({"var": var_samp("f"), "pop": var_pop("f")}, SCHEMA)

    def lowered(*numbers):
        rows = pa.Table.from_pylist([{"f": number} for number in numbers], SCHEMA)
        return aggregates.lower(aggregates.lift(rows, np.zeros(len(numbers), dtype=np.int64), 1)).to_pylist()[0]

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
    sums = []
    for _ in range(3):
        order = generator.permutation(len(numbers))
        sums.append(aggregates.lower(aggregates.lift(pa.table({"v": numbers[order]}), codes[order], 3)))
    assert sums[0].equals(sums[1])
    assert sums[0].equals(sums[2])
    exact = [float(sum(map(Fraction, numbers[codes == group].tolist()))) for group in range(3)]
    assert sums[0].column("sum").to_pylist() == exact


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
    state = aggregates.lift(pa.Table.from_pylist([{"i": 1}], SCHEMA), np.zeros(1, dtype=np.int64), 2)
    with pytest.raises(ValueError, match="has rows that the other has not"):
        aggregates.retract(aggregates.empty(2), state)
