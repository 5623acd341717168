from datetime import timedelta

import pyarrow as pa
import pytest

from upstream.expressions import nodes as n

_INT = pa.int32()
_A, _B, _ONE = n.Field("a", _INT), n.Field("b", _INT), n.Constant(1, _INT)


def _call(function: str, *arguments: n.Expression, dtype: pa.DataType = _INT) -> n.Call:
    return n.Call(function, arguments, dtype)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (_call("add", _A, _ONE), "(a + 1)"),
        (_call("negate", _A), "(-a)"),
        (_call("is_null", _A), "(a IS NULL)"),
        (_call("cast", _A, dtype=pa.decimal128(10, 2)), "cast(a AS DECIMAL(10,2))"),
        (_call("in", _A, _ONE, _B), "(a IN (1, b))"),
        (_call("case", _A, _ONE, _B), "(CASE WHEN a THEN 1 ELSE b END)"),
        (_call("concat", _A, n.Constant("it's", pa.string())), r"concat(a, 'it\'s')"),
        (n.Constant(None, _INT), "NULL"),
        (n.Constant(True, pa.bool_()), "TRUE"),
        (n.Constant(timedelta(seconds=5), pa.duration("us")), "INTERVAL '0:00:05'"),
    ],
)
def test_text_is_sql(expression, text):
    assert str(expression) == text


def test_trees_are_walked_rewritten_and_cut_into_conditions():
    inner = _call("add", _A, _ONE)
    assert list(n.walk(_call("negate", inner))) == [_call("negate", inner), inner, _A, _ONE]
    assert n.fields(_call("add", inner, _B)) == {"a", "b"}
    nested = _call("add", _call("negate", _A), _B)
    assert n.substituted(nested, {"a": _ONE}) == _call("add", _call("negate", _ONE), _B)
    assert n.renamed(nested, {"b": "c"}) == _call("add", _call("negate", _A), n.Field("c", _INT))
    one, two, three = (n.Field(name, pa.bool_()) for name in "xyz")
    both = _call("and", _call("and", one, _call("or", two, three)), three)
    assert n.conjuncts(both) == (one, _call("or", two, three), three)
    assert n.conjuncts(None) == ()
    assert (
        len({_call("add", _A, _ONE), _call("add", n.Field("a", _INT), n.Constant(1, _INT)), _call("add", _ONE, _A)})
        == 2
    )
