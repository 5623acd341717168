from datetime import timedelta

import pyarrow as pa
import pytest

from upstream.queries.expressions.nodes import (
    Call,
    Constant,
    Expression,
    Field,
    conjuncts,
    fields,
    renamed,
    substituted,
    walk,
)

_INT = pa.int32()
_A, _B, _ONE = Field("a", _INT), Field("b", _INT), Constant(1, _INT)


def _call(function: str, *arguments: Expression, dtype: pa.DataType = _INT) -> Call:
    return Call(function, arguments, dtype)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (_call("add", _A, _ONE), "(a + 1)"),
        (_call("negate", _A), "(-a)"),
        (_call("is_null", _A), "(a IS NULL)"),
        (_call("cast", _A, dtype=pa.decimal128(10, 2)), "cast(a AS DECIMAL(10,2))"),
        (_call("in", _A, _ONE, _B), "(a IN (1, b))"),
        (_call("case", _A, _ONE, _B), "(CASE WHEN a THEN 1 ELSE b END)"),
        (_call("concat", _A, Constant("it's", pa.string())), "concat(a, 'it''s')"),
        (Constant(None, _INT), "NULL"),
        (Constant(True, pa.bool_()), "TRUE"),
        (Constant(timedelta(seconds=5), pa.duration("us")), "INTERVAL '0:00:05'"),
    ],
)
def test_text_is_sql(expression, text):
    assert str(expression) == text


def test_trees_are_walked_rewritten_and_cut_into_conditions():
    inner = _call("add", _A, _ONE)
    assert list(walk(_call("negate", inner))) == [_call("negate", inner), inner, _A, _ONE]
    assert fields(_call("add", inner, _B)) == {"a", "b"}
    nested = _call("add", _call("negate", _A), _B)
    assert substituted(nested, {"a": _ONE}) == _call("add", _call("negate", _ONE), _B)
    assert renamed(nested, {"b": "c"}) == _call("add", _call("negate", _A), Field("c", _INT))
    one, two, three = (Field(name, pa.bool_()) for name in "xyz")
    both = _call("and", _call("and", one, _call("or", two, three)), three)
    assert conjuncts(both) == (one, _call("or", two, three), three)
    assert conjuncts(None) == ()
    assert len({_call("add", _A, _ONE), _call("add", Field("a", _INT), Constant(1, _INT)), _call("add", _ONE, _A)}) == 2
