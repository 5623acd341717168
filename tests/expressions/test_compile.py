from collections.abc import Sequence
from contextlib import suppress
from itertools import product

import polars as pl
import pyarrow as pa
import pytest
from kit.failures import fails, unfit

from upstream.conf.errors import QueryError, SchemaError
from upstream.expressions.compile import compiled, compiled_columns
from upstream.expressions.kinds import BOOLEAN, DOUBLE, INT, LONG, TEXT, TIMESTAMP
from upstream.expressions.nodes import Call, Constant, Expression, Field, walk
from upstream.expressions.types import call, cast, function_names

_A, _B, _S = Field("a", INT), Field("b", INT), Field("s", TEXT)
_SCHEMA = pa.schema([("a", INT), ("b", INT), ("s", TEXT)])


def _rows(a: Sequence[int | None], b: Sequence[int | None], s: Sequence[str | None]) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(pa.table([a, b, s], schema=_SCHEMA)))


def test_several_columns_at_once_are_those_of_each_by_itself():
    total = call("add", [_A, _B])
    columns: list[tuple[str, Expression]] = [
        ("total", total),
        ("a", _B),
        ("square", call("multiply", [total, total])),
        ("one", Constant(1, LONG)),
        ("text", call("concat", [_S, total])),
    ]
    frame = _rows([1, None, 3], [4, 5, -3], ["x", "y", None])
    made = compiled_columns(columns, _SCHEMA)
    found = made.evaluate(frame)
    assert found.columns == made.schema.names == ["total", "a", "square", "one", "text"]
    assert found["square"].to_list() == [25, None, 0]
    assert found["a"].to_list() == [4, 5, -3]
    assert found["one"].to_list() == [1, 1, 1]
    for name, expression in columns:
        assert found[name].equals(compiled(expression, _SCHEMA).evaluate(frame).rename(name))


def test_the_error_names_the_expression_and_the_values_of_its_row():
    made = compiled(call("divide", [_A, call("subtract", [_B, Constant(2, INT)])]), _SCHEMA)
    assert made.evaluate(_rows([1], [1], [None])).to_list() == [-1.0]
    with pytest.raises(QueryError) as caught:
        made.evaluate(_rows([1, 7, 8], [1, 2, 2], [None] * 3))
    expression = "(cast(a AS DOUBLE) / cast((b - 2) AS DOUBLE))"
    assert f"{expression} has no value where a = 7, b = 2: division by zero" in str(caught.value)
    assert made.evaluate(_rows([3], [3], [None])).to_list() == [3.0], "an error leaves nothing behind"


def test_the_first_expression_that_fails_is_named_not_one_around_it():
    made = compiled(call("add", [_S, _A]), _SCHEMA)
    fails(r"^cast\(s AS BIGINT\) has no value where a = 1, s = 'x'", made.evaluate, _rows([1], [1], ["x"]))


def test_constants_are_computed_when_they_are_compiled_and_fail_with_a_row():
    made = compiled(call("divide", [Constant(1, INT), Constant(0, INT)]), _SCHEMA)
    assert made.evaluate(_rows([], [], [])).to_list() == []
    fails("division by zero", made.evaluate, _rows([1], [1], [None]))
    upper = compiled(call("upper", [Constant("é", TEXT)]), _SCHEMA)
    assert upper.evaluate(_rows([1, 2], [1, 2], [None] * 2)).to_list() == ["É", "É"]


def test_no_rows_have_the_results_type():
    for expression in (cast(_A, pa.decimal128(12, 2)), call("eq", [_A, _B]), Constant(2.5, DOUBLE)):
        found = compiled(expression, _SCHEMA).evaluate(_rows([], [], []))
        assert found.to_arrow().cast(expression.type).type == expression.type
        assert found.len() == 0
    columns = [(name, cast(Constant(value, DOUBLE), TEXT)) for name, value in (("p", 0.0), ("n", -0.0))]
    found = compiled_columns(columns, _SCHEMA).evaluate(_rows([1], [1], [None]))
    assert found.row(0) == ("0.0", "-0.0")


def test_columns_have_to_be_there_with_their_type():
    unfit("no column z", compiled, Field("z", INT), _SCHEMA)
    unfit("column a is of type INT", compiled, Field("a", LONG), _SCHEMA)
    unfit("no function nothing", compiled, Call("nothing", (_A,), INT), _SCHEMA)


def test_a_deep_expression_is_compiled_and_evaluated_in_proportion_to_its_size():
    """Each operand is used several times in a division, and would be computed twice as often with each level."""
    deep: Expression = Field("a", INT)
    for _ in range(40):
        deep = call("mod", [call("add", [deep, _B]), Constant(1_000_003, INT)])
    assert compiled(deep, _SCHEMA).evaluate(_rows([5, None], [3, 1], [None] * 2)).to_list() == [125, None]


def test_every_function_is_evaluated():
    """Each name that can be typed has something that evaluates it; some want a constant where these have a column."""
    typed: dict[tuple[str, frozenset[str]], Expression] = {}
    for name, arguments in product(function_names(), _ARGUMENTS):
        with suppress(SchemaError, ValueError):
            made = call(name, arguments)
            typed[name, frozenset(each.function for each in walk(made) if isinstance(each, Call))] = made
    assert len({name for name, _ in typed}) > 110
    for made in typed.values():
        try:
            compiled(made, pa.schema([(each.name, each.type) for each in _SINGLES]))
        except SchemaError as error:
            if "there is no function" in str(error):
                raise


_SINGLES = [Field("x", BOOLEAN), _A, Field("d", DOUBLE), _S, Field("t", TIMESTAMP), Field("l", pa.list_(INT))]
_ARGUMENTS: list[list[Field]] = [
    *([one] for one in _SINGLES),
    *([one, two] for one in _SINGLES for two in _SINGLES),
    *([_S, _S, _S], [_S, _A, _A], [_S, _S, _A], [_A, _A, _A], [Field("x", BOOLEAN), _A, _A]),
]
