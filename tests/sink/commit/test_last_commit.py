"""A table that has lost what a query committed is noticed; a new checkpoint mends it."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kit.sink import Sink
from kit.tables import read_rows

from upstream.conf.errors import CheckpointError, TableError
from upstream.core.feedback.checkpoint_layout import SINK
from upstream.sink.commit.batch_identity import BASE_PREFIX, HIGHEST
from upstream.sink.commit.last_commit import LastCommit, read_last_commits
from upstream.storage.folder import TableFolder

NAME = "last-commits.json"


def fill(sink: Any) -> None:
    for batch in range(3):
        sink.batch(batch, [sink.rows([(1, 10 + batch, f"v{batch}"), (batch, 1, "x")], seq=10 * batch)])


def remembered(sink: Any) -> dict[str, Any]:
    (fields,) = json.loads((sink.checkpoint / SINK / NAME).read_text()).values()
    return LastCommit(*fields)._asdict()


def test_the_checkpoint_knows_its_last_commit(sink):
    fill(sink)
    table = DeltaTable(str(sink.path))
    assert remembered(sink) == {"table_id": str(table.metadata().id), "version": 3, "batch_id": 2, "incarnation": 0}
    sink.batch(3, [])  # nothing is committed, so nothing is to be remembered
    assert remembered(sink)["version"] == table.version() == 3
    (sink.checkpoint / SINK / NAME).unlink()
    assert sink.batch(2, [sink.rows([(1, 12, "v2")], seq=20)]) is None
    assert remembered(sink)["batch_id"] == 2, "a repeat tells a checkpoint that does not know"


def lose(sink: Any, how: str) -> None:
    if how.startswith("restored"):
        DeltaTable(str(sink.path)).restore(2)
    else:
        shutil.rmtree(sink.path)
    if how == "put back from a copy":
        shutil.move(sink.folder / "copy", sink.path)
    if how in ("created again", "restored, then written by others"):
        Sink(sink.folder, query_id="somebody").batch(0, [sink.rows([(7, 7, "theirs")])])


LOSSES = ["deleted", "created again", "put back from a copy", "restored", "restored, then written by others"]


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("when", ["between batches", "during a batch", "before the repeat of the last batch"])
def test_a_table_that_lost_commits_is_refused(sink, how, when):
    sink.batch(0, [sink.rows([(0, 1, "x"), (1, 10, "v0")])])
    sink.batch(1, [sink.rows([(1, 11, "v1")], seq=10)])
    shutil.copytree(sink.path, sink.folder / "copy")
    sink.batch(2, [sink.rows([(1, 12, "v2"), (2, 1, "x")], seq=20)])
    batch = 2 if when.startswith("before the repeat") else 3
    results = sink.tasks([sink.rows([(3, 13, "v3")], seq=30)]) if when == "during a batch" else []
    lose(sink, how)
    there = None if how == "deleted" else sink.latest()
    for _ in range(2):  # and again after a restart: it is no passing trouble
        with pytest.raises(TableError, match="restore the table"):
            sink.commit(results or sink.tasks([sink.rows([(3, 13, "v3")], seq=30)]), batch)
    if there is None:
        assert not sink.files()
    else:
        assert sink.latest() == there
    # A new checkpoint reads all again, and the table is what it should be.
    again = Sink(sink.folder, query_id="query-2")
    again.batch(0, [again.rows([(0, 1, "x"), (1, 10, "v0"), (1, 12, "v2"), (2, 1, "x"), (3, 13, "v3")])])
    expected = {0: (1, "x"), 1: (12, "v2"), 2: (1, "x"), 3: (13, "v3")}
    assert {key: row for key, row in again.latest().items() if key != 7} == expected


def test_who_wants_to_go_on_without_the_lost_rows_can(sink):
    fill(sink)
    DeltaTable(str(sink.path)).restore(2)
    with pytest.raises(TableError, match=f"To continue without those rows, remove {SINK}/{NAME}"):
        sink.batch(3, [sink.rows([(5, 1, "x")])])
    (sink.checkpoint / SINK / NAME).unlink()
    sink.batch(3, [sink.rows([(5, 1, "x")])])
    assert sink.latest() == {0: (1, "x"), 1: (11, "v1"), 5: (1, "x")}


def test_what_others_do_without_losing_anything_is_no_loss(sink):
    fill(sink)
    table = DeltaTable(str(sink.path))
    table.delete("k = 1")
    table.restore(3)
    table.optimize.compact()
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
    sink.batch(3, [sink.rows([(1, 13, "v3")], seq=30)])
    assert sink.latest()[1] == (13, "v3")
    assert remembered(sink)["version"] == sink.version()


def test_a_death_before_it_was_remembered_does_not_hide_a_restore(sink):
    fill(sink)
    before = (sink.checkpoint / SINK / NAME).read_text()
    sink.batch(3, [sink.rows([(4, 1, "x")])])
    (sink.checkpoint / SINK / NAME).write_text(before)
    DeltaTable(str(sink.path)).restore(3)
    with pytest.raises(TableError, match=r"version 5 of the table .* has restored it"):
        sink.batch(3, [sink.rows([(4, 1, "x")])])


def test_memory_that_cannot_be_read_or_written(sink):
    (sink.checkpoint / SINK).write_text("a file where the folder should be")
    with pytest.raises(CheckpointError, match=r"cannot be kept in .*upstream-sink"):
        sink.batch(0, [sink.rows([(1, 1, "x")])])
    (sink.checkpoint / SINK).unlink()
    assert sink.batch(0, [sink.rows([(1, 1, "x")])]) is None or sink.latest() == {1: (1, "x")}
    (sink.checkpoint / SINK / NAME).write_text("{")
    with pytest.raises(CheckpointError, match="cannot be kept in"):
        sink.batch(1, [sink.rows([(1, 2, "x")])])
    assert sink.latest() == {1: (1, "x")}


def test_a_new_checkpoint_is_not_taken_for_a_repeat(make_sink):
    old, new = make_sink(), make_sink(query_id="query-2")
    fill(old)
    assert new.batch(0, [new.rows([(1, 20, "new")], seq=99)]) is not None
    assert new.latest()[1] == (20, "new")
    table = DeltaTable(str(new.path))
    assert (table.transaction_version("upstream-query-1"), table.transaction_version("upstream-query-2")) == (2, 0)


def test_the_base_of_a_checkpoint_stays_over_restarts_and_repeats(make_sink):
    old, new = make_sink(), make_sink(query_id="query-2")
    old.batch(0, [old.rows([(1, 10, "a")], seq=99)])
    table = DeltaTable(str(new.path))
    assert (table.transaction_version(BASE_PREFIX + "query-1"), table.transaction_version(HIGHEST)) == (0, 100)
    new.tasks([new.rows([(1, 10, "dies before its commit")], seq=7)])
    for number in range(3):
        new.batch(number, [new.rows([(1, 10, f"b{number}")], seq=number)])
        table = DeltaTable(str(new.path))
        assert table.transaction_version(BASE_PREFIX + "query-2") == 100
        assert table.transaction_version(HIGHEST) == 101 + number
    assert new.table().column("_upstream_seq").to_pylist() == [102]


def test_two_queries_whose_first_batches_meet(make_sink):
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("a mapped name", pa.string())])
    one, two = make_sink(columns), make_sink(columns, query_id="query-2")
    first, second = one.tasks([one.rows([(1, 10, "a")], seq=5)]), two.tasks([two.rows([(2, 10, "b")], seq=5)])
    one.commit(first, 0)
    two.commit(second, 0)
    assert DeltaTable(str(two.path)).transaction_version(BASE_PREFIX + "query-2") == 6
    two.batch(1, [two.rows([(1, 10, "b"), (2, 10, "c")])])
    assert two.latest() == {1: (10, "b"), 2: (10, "c")}


Updates = list[tuple[int, int, bool]]
updates = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8), st.booleans()), max_size=12)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(updates, min_size=1, max_size=4), cuts=st.integers(4, 20), timed=st.booleans())
def test_replaying_all_input_changes_no_row(tmp_path_factory, batches, cuts, timed):
    """With a new checkpoint, cut into other batches: every row stays as it is, but for the number of its arrival."""
    folder: Path = tmp_path_factory.mktemp("replay")
    options = {"key": "k", "buckets": "2"} | ({"eventTime": "t"} if timed else {})
    first, second = (Sink(folder, options=options, query_id=name) for name in ("first", "second"))

    def write(sink: Sink, batch: int, rows: Updates, seq: int) -> None:
        marks = [deleted for _, _, deleted in rows]
        given = [(key, time, None if deleted else f"v{seq + at}") for at, (key, time, deleted) in enumerate(rows)]
        arrival = [1_600_000_000_000_000 + seq + at for at in range(len(rows))]
        sink.batch(batch, [sink.rows(given, seq=seq, deleted=marks, arrival_us=arrival)])

    seq = 0
    for batch, rows in enumerate(batches):
        write(first, batch, rows, seq)
        seq += len(rows)
    whole = [row for rows in batches for row in rows]
    if not whole:
        return
    before = rows_of(first)
    for batch, at in enumerate(range(0, len(whole), cuts)):
        write(second, batch, whole[at : at + cuts], at)
    # Without a time what arrives later is newer: in between keys go back, and in the end they are where they were.
    assert rows_of(second) == before
    write(second, len(whole) + 1, [(0, 9, False)], 1000)
    assert {row[0]: row[1] for row in rows_of(second)}[0] == 9


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(st.lists(updates, min_size=1, max_size=2), min_size=2, max_size=4),
    keep=st.sampled_from(["latest", "latest 2"]),
)
@example(runs=[[[(0, 0, False), (0, 1, True), (0, 1, False)]], [[]]], keep="latest 2")
@example(runs=[[[(0, 0, False)], [(0, 1, True)]], [[(0, 1, False)], [(0, 0, False)]]], keep="latest 2")
def test_over_checkpoints_the_later_arrival_stays(tmp_path_factory, runs, keep):
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    arrived: dict[tuple[int, int], str | None] = {}
    deleted: set[tuple[int, int]] = set()
    sink: Sink | None = None
    for run, batches in enumerate(runs):
        sink = Sink(
            folder, options={"key": "k", "eventTime": "t", "buckets": "2", "history": keep}, query_id=f"query-{run}"
        )
        seq = 0
        for number, rows in enumerate(batches):
            given = [(key, time, None if gone else f"{run}/{seq + at}") for at, (key, time, gone) in enumerate(rows)]
            batch = sink.rows(given, seq=seq, deleted=[gone for _, _, gone in rows])
            sink.tasks([batch])
            sink.batch(number, [batch])
            assert sink.batch(number, [batch]) is None
            arrived |= {(key, time): value for key, time, value in given}
            deleted |= {(key, time) for key, time, value in given if value is None}
            seq += len(rows)
    assert sink is not None
    count = 1 if keep == "latest" else 2
    expected: list[tuple[int, int, str]] = []
    for key in {key for key, _ in arrived}:
        # What a deletion took away does not come back, also when a row of the deletion's own time follows it.
        since = max((time for of, time in deleted if of == key), default=-1)
        newest = sorted(
            ((time, value) for (of, time), value in arrived.items() if of == key and time >= since),
            reverse=True,
            key=lambda row: row[0],
        )
        alive = list(itertools.takewhile(lambda row: row[1] is not None, newest))
        expected += [(key, time, value) for time, value in alive[:count] if value is not None]
    assert rows_of(sink) == sorted(expected)


def rows_of(sink: Sink) -> list[tuple[Any, ...]]:
    if not (sink.path / "_delta_log").exists():
        return []
    return read_rows(sink.path, "k", "t", "v")


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
