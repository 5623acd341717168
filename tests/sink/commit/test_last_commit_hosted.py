"""What a checkpoint remembers of its result tables."""

import shutil

import pytest
from deltalake import DeltaTable
from kit.result_tables import Hosted

from upstream.conf.errors import CheckpointError, TableError
from upstream.sink.commit.last_commit import read_last_commits
from upstream.storage.folder import TableFolder


@pytest.mark.parametrize("anew", [True, False])
def test_a_table_that_was_deleted_is_not_made_anew_with_the_changes_alone(hosted, anew):
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


@pytest.mark.parametrize(("how", "says"), [("restored", "has restored it"), ("put back from a copy", "at version 0")])
def test_a_table_that_was_set_back_is_refused(hosted, how, says):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(0, "x")]})
    shutil.copytree(a.location, hosted.folder / "copy")
    hosted.batch(1, [a], {"a": [(1, "x")]})
    if how == "restored":
        DeltaTable(a.location).restore(0)
    else:
        shutil.rmtree(a.location)
        shutil.copytree(hosted.folder / "copy", a.location)
    for _ in range(2):
        with pytest.raises(TableError, match=says):
            hosted.batch(2, [a], {"a": [(9, "x")]})
        hosted.restart()
    hosted.batch(2, [hosted.table("a", 2)], {"a": [(9, "x")]})
    assert hosted.rows(a) == [(9, "x")]


def test_a_table_of_the_same_name_and_another_checkpoint_is_refused(hosted):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    shutil.rmtree(a.location)
    Hosted(hosted.folder / "elsewhere").batch(0, [a], {"a": [(2, "x")]})
    with pytest.raises(TableError, match="is another one than the query 'a' has written"):
        hosted.batch(1, [a], {"a": [(3, "x")]})
    assert hosted.rows(a) == [(2, "x")]


def test_only_queries_in_force_are_remembered(hosted):
    a, b = hosted.table("a", 3), hosted.table("b", 4)
    hosted.batch(0, [a, b], {"a": [(1, "x")]})
    hosted.batch(1, [a, b], {"a": [(2, "x")]})
    folder = TableFolder(str(hosted.checkpoint))
    found = read_last_commits(folder)
    assert {name: (each.incarnation, each.version, each.batch_id) for name, each in found.items()} == {
        "a": (3, 1, 1),
        "b": (4, 0, 0),
    }
    hosted.batch(2, [b])
    assert read_last_commits(folder) == {"b": found["b"]}


def test_a_memory_that_cannot_be_read_or_written_is_an_error(hosted):
    a = hosted.table("a")
    hosted.batch(0, [a])
    place = hosted.checkpoint / "upstream-sink" / "last-commits.json"
    place.write_text("{")
    hosted.restart()
    with pytest.raises(CheckpointError, match="remembers of its tables"):
        hosted.batch(1, [a], {"a": [(1, "x")]})
    assert hosted.rows(a) == []
