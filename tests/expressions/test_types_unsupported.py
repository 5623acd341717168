from kit.failures import unfit

from upstream.expressions import types
from upstream.expressions.types import call, function_names


def test_a_function_of_spark_is_refused_with_a_hint():
    unfit("prepare them in the DataFrame", call, "from_json", [])
    assert types.hint_for("frobnicate") == ""
    assert [name for name in function_names() if types.hint_for(name)] == [], "of a function that is there"
