"""Aggregates from three functions, beside those that there are."""

import doctest
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import upstream
from upstream.conf.errors import OptionError, QueryError, SchemaError
from upstream.operators.aggregates import algebra, custom
from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.custom import aggregate
from upstream.operators.aggregates.functions import sum_

from .oracle import SCHEMA, grouped_rows, in_one_pass, in_pieces

GROUPS = 5


def xor(values, groups):
    bits = np.zeros(groups.size, dtype=np.int64)
    np.bitwise_xor.at(bits, groups.codes, values)
    return {"bits": pa.array(bits)}


def checksum(**changes):
    """The bits of two columns, each taken together by exclusive or; which is its own inverse."""
    functions = {
        "lift": lambda arrays, groups: xor(
            np.bitwise_xor(*(a.fill_null(0).cast("int64").to_numpy() for a in arrays)), groups
        ),
        "combine": lambda state, groups: xor(state["bits"].to_numpy(), groups),
        "lower": lambda state: state["bits"],
        "retract": lambda state, other: {"bits": pa.array(state["bits"].to_numpy() ^ other["bits"].to_numpy())},
        "state": {"bits": pa.int64()},
        "type": pa.int64(),
    }
    return aggregate("checksum", ["i", "small"], **(functions | changes))


@given(grouped_rows(), st.data())
def test_it_is_lifted_combined_and_lowered(grouped, data):
    aggregates = Aggregates.of({"x": checksum(), "s": sum_("small")}, SCHEMA)
    pieces = data.draw(st.lists(st.integers(0, 3), min_size=len(grouped), max_size=len(grouped)))
    state = in_pieces(aggregates, grouped, GROUPS, pieces, data.draw(st.randoms(use_true_random=False)))
    assert state.equals(in_one_pass(aggregates, grouped, GROUPS))
    for group, found in enumerate(aggregates.lower(state).to_pylist()):
        expected = 0
        for code, row in grouped:
            expected ^= ((row["i"] or 0) ^ (row["small"] or 0)) if code == group else 0
        assert found["x"] == expected
    assert aggregates.differential
    assert aggregates.retract(state, state).equals(aggregates.empty(GROUPS))


def test_its_state_is_named_by_its_name_and_version_and_shared():
    asked = {"x": checksum(), "twice": checksum(lower=lambda state: pa.array(state["bits"].to_numpy() * 2))}
    aggregates = Aggregates.of(asked, SCHEMA)
    assert aggregates.state_schema.names == ["custom checksum@1(i, small).bits"]
    assert Aggregates.of({"x": checksum(version=2)}, SCHEMA).state_schema.names == ["custom checksum@2(i, small).bits"]
    rows = pa.Table.from_pylist([{"i": 6, "small": 3}], SCHEMA)
    assert aggregates.lower(aggregates.lift(rows, np.array([0]), 1)).to_pylist() == [{"x": 5, "twice": 10}]


def test_without_retract_it_is_not_differential():
    aggregates = Aggregates.of({"x": checksum(retract=None)}, SCHEMA)
    assert not aggregates.differential
    with pytest.raises(OptionError, match="checksum@1"):
        aggregates.retract(aggregates.empty(1), aggregates.empty(1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lift": lambda _, groups: {"bit": pa.array([0] * groups.size)}}, r"lift of custom checksum.*\['bit'\]"),
        ({"lift": lambda *_: {"bits": pa.array([0])}}, "bits, .* has 1 values.*2, one per group"),
        ({"lift": lambda _, groups: {"bits": pa.array(["x"] * groups.size)}}, "is string.*int64"),
        ({"lower": lambda _: pa.array([])}, "what lower of custom checksum"),
    ],
)
def test_functions_that_return_something_else_are_reported(changes, message):
    aggregates = Aggregates.of({"x": checksum(**changes)}, SCHEMA)
    with pytest.raises(SchemaError, match=message):
        aggregates.lower(aggregates.lift(SCHEMA.empty_table(), np.empty(0, dtype=np.int64), 2))


def test_a_function_that_exits_is_named():
    aggregates = Aggregates.of({"x": checksum(lift=lambda *_: sys.exit(3))}, SCHEMA)
    with pytest.raises(QueryError, match=r"lift of custom checksum@1.* raised SystemExit: 3"):
        aggregates.lift(SCHEMA.empty_table(), np.empty(0, dtype=np.int64), 2)


def test_two_states_of_one_name_are_refused():
    with pytest.raises(OptionError, match="two aggregates keep different things as custom checksum@1"):
        Aggregates.of({"x": checksum(), "y": checksum(state={"bit": pa.int64()})}, SCHEMA)


def test_a_column_that_does_not_exist_is_refused():
    with pytest.raises(SchemaError, match="small"):
        Aggregates.of({"x": checksum()}, pa.schema({"i": pa.int64()}))


@pytest.mark.parametrize("module", [algebra, custom])
def test_examples_in_docstrings_run(module):
    found = doctest.testmod(module, extraglobs={"us": upstream})
    assert found.attempted
    assert not found.failed
