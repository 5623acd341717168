"""What a checkpoint remembers of its result tables."""

from __future__ import annotations

import shutil

import pytest
from deltalake import DeltaTable
from kit.result_tables import Hosted

from upstream.conf.errors import TableError


@pytest.mark.parametrize("anew", [True, False])
def test_a_table_that_was_deleted_is_not_made_anew_with_the_changes_alone(hosted: Hosted, anew: bool) -> None:
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x"), (2, "x")]})
    if anew:
        hosted.restart()
    shutil.rmtree(a.location)
    with pytest.raises(TableError, match=r"there is no table at .* any more") as caught:
        hosted.batch(1, [a], {"a": [(1, "y")]})
    assert "deactivate a, then activate it" in caught.value.hint
    hosted.batch(1, [hosted.table("a", 2)], {"a": [(1, "y"), (2, "x")]})
    assert hosted.rows(a) == [(1, "y"), (2, "x")]


def test_a_table_that_was_restored_is_refused(hosted: Hosted) -> None:
    a = hosted.table("a")
    for number in range(3):
        hosted.batch(number, [a], {"a": [(number, "x")]})
    DeltaTable(a.location).restore(1)
    for _ in range(2):
        with pytest.raises(TableError, match="has restored it to an earlier one"):
            hosted.batch(3, [a], {"a": [(9, "x")]})
        hosted.restart()
    hosted.batch(3, [hosted.table("a", 2)], {"a": [(9, "x")]})
    assert hosted.rows(a) == [(9, "x")]
