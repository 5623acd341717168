import pytest

from upstream.conf.errors import SchemaError
from upstream.expressions.coercion import Signature, misfit
from upstream.expressions.kinds import BOOLEAN, INT, LONG, TEXT
from upstream.expressions.nodes import Call, Field


def test_arguments_are_cast_and_the_name_is_the_canonical_one():
    rule = Signature(TEXT, (TEXT, INT, INT), optional=1, name="substring")
    made = rule("substr", [Field("a", TEXT), Field("b", LONG)])
    assert made == Call("substring", (Field("a", TEXT), Call("cast", (Field("b", LONG),), INT)), TEXT)


@pytest.mark.parametrize("given", [[], [Field("a", TEXT)] * 4, [Field("a", TEXT), Field("b", BOOLEAN)]])
def test_what_does_not_fit_is_refused_with_what_would(given):
    with pytest.raises(SchemaError) as caught:
        Signature(TEXT, (TEXT, INT, INT), optional=1)("substr", given)
    assert "substr(STRING, INT[, INT])" in str(caught.value)
    assert Signature(INT, (INT,), optional=1).written("f") == "f([INT])"
    assert Signature(INT, ()).written("f") == "f()"


def test_a_misfit_names_the_arguments_with_their_types():
    error = misfit("f", [Field("a", TEXT)], "a number", "cast it")
    assert str(error).startswith("f does not take (a (STRING))")
    assert (error.expected, error.hint) == ("a number", "cast it")
