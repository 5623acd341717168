from unittest.mock import patch

import pytest
from kit.continuous import FORMS, relation

from upstream.conf.errors import QueryRefusedError
from upstream.hosting import host_plan
from upstream.hosting.host_plan import rehearse


def rehearsed(text: str) -> None:
    rehearse(relation(text), "q", "/nowhere/q", 2)


def test_what_can_be_hosted_passes_and_no_table_is_made(tmp_path):
    rehearse(relation(FORMS[0]), "q", str(tmp_path / "q"), 1)
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_in_the_words_of_the_query():
    with pytest.raises(QueryRefusedError, match=r"lpad\(sym, 2000000000"):
        rehearsed("SELECT COUNT(*) AS n FROM trade [NOW] GROUP BY lpad(sym, 2000000000)")


@pytest.mark.parametrize("error", [AssertionError("odd"), RecursionError("odd"), OverflowError("odd")])
def test_any_error_of_planning_is_a_refusal(error):
    with (
        patch.object(host_plan, "placed", side_effect=error),
        pytest.raises(QueryRefusedError, match=f"cannot be planned: {type(error).__name__}: odd"),
    ):
        rehearsed(FORMS[0])
