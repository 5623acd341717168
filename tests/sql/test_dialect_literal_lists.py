import pytest
from kit.continuous import CATALOG

from upstream.expressions.nodes import Call, Constant
from upstream.operators.relations.plan.nodes import Where, walk
from upstream.sql import bind
from upstream.sql.dialect import take_lists

NUMBERS = ", ".join(map(str, range(-50, 100)))
TEXTS = ",".join(f"'v{each % 120}'" for each in range(150))


def condition(text: str):
    plan = bind(f"SELECT sym FROM trade [NOW] WHERE {text}", CATALOG).plan
    return next(each.condition for each in walk(plan) if isinstance(each, Where))


def test_lists_are_one_constant_of_the_type_that_the_value_has():
    for text, values in (
        (f"n IN ({NUMBERS})", tuple(range(-50, 100))),
        (f"sym in\n( {TEXTS} )", tuple(sorted({f"v{each}" for each in range(120)}))),
    ):
        found = condition(text)
        assert isinstance(found, Call)
        assert found.function == "in_list"
        listed = found.arguments[1]
        assert isinstance(listed, Constant)
        assert listed.value == values
        assert listed.type.value_type == found.arguments[0].type
    assert condition(f"px IN ({NUMBERS})").function == "in"  # doubles are compared as they always are


@pytest.mark.parametrize("around", ["'{}'", "`{}`", "/* {} */", "-- {}", '"{}"'])
def test_what_stands_in_quotes_or_in_a_comment_is_no_list(around):
    text = "SELECT " + around.format(f"n IN ({NUMBERS})")
    assert take_lists(text) == (text, {})
