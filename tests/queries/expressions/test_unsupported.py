from upstream.queries.expressions import unsupported
from upstream.queries.expressions.typing import call, function_names

from ..failing import unfit


def test_a_function_of_spark_is_refused_with_a_hint():
    unfit("prepare them in the DataFrame", call, "from_json", [])
    assert unsupported.hint_for("frobnicate") == ""
    assert [name for name in function_names() if unsupported.hint_for(name)] == [], "of a function that is there"
