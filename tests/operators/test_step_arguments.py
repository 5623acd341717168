"""What is given to joins, checked."""

import pytest

from upstream.conf.errors import OptionError
from upstream.operators.step_arguments import columns_of_on


@pytest.mark.parametrize(
    ("given", "found"),
    [("a", {"a": "a"}), (["a", "b"], {"a": "a", "b": "b"}), ({"a": "x", "b": "y"}, {"a": "x", "b": "y"})],
)
def test_on(given, found):
    assert columns_of_on(given) == found


@pytest.mark.parametrize("given", ["", [], {}, None, {"a": ""}, {"a": 3}, 7, [3]])
def test_on_that_names_no_columns(given):
    with pytest.raises(OptionError, match="on="):
        columns_of_on(given)
