"""What a follower of a latest table gets, commit by commit, and what it refuses."""

import dataclasses
import datetime as dt
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kit.sink import NOW_US

from upstream.conf.errors import FeedChangedError, OptionError, SchemaError, TableError
from upstream.core.rows.system_column import SYSTEM
from upstream.delta_format.append_table import DeadLetterWriter, letters_of
from upstream.sink.maintenance.runner import TableMaintenance
from upstream.sink.spec.maintenance_rules import MaintenanceResult, MaintenanceRules
from upstream.storage.folder import TableFolder

from .following import Follower, gone, some

Row = Mapping[str, Any]


def plain(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Key, time, value and whether it is a deletion, of rows apart from punctuation."""
    return sorted(
        (row["k"], row["t"], row["v"], row[SYSTEM]["deleted"]) for row in rows if not row[SYSTEM]["punctuation"]
    )


def promises(rows: Iterable[Row]) -> list[Any]:
    return [row["t"] for row in rows if row[SYSTEM]["punctuation"]]


def test_it_begins_with_the_table_and_goes_on_with_what_commits_deliver(first, follow):
    some(first, 0, (1, 10, "a"), (2, 10, "b"), (3, 10, None))
    some(first, 1, (2, 11, "b2"), (2, 12, "b3"))
    follower = follow()
    assert plain(follower.rows()) == [(1, 10, "a", False), (2, 12, "b3", False), (3, 10, None, False)]
    some(first, 2, (1, 9, "older"), (3, 20, "c2"), (4, 1, None))
    first.batch(3, [gone(first, [(1, 30, None), (9, 30, None)], 300)])
    rows = follower.rows()
    assert plain(rows) == [(1, 30, None, True), (3, 20, "c2", False), (4, 1, None, False)]
    assert {row[SYSTEM]["source"] for row in rows} == {str(first.path)}
    assert follower.take() is None
    assert set(rows[0]) == {"k", "t", "v", SYSTEM}


def test_a_table_whose_columns_were_renamed_is_refused(first, follow):
    some(first, 0, (1, 10, "a"))
    wider = dataclasses.replace(
        first,
        columns=first.columns.append(pa.field("a b", pa.int64())),
        options={**first.options, "schemaEvolution": "add"},
    )
    some(wider, 1, (2, 10, "b", 1))
    follower = follow()
    assert len(follower.rows()) >= 2
    entries = sorted((first.path / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
    metadata = [each["metaData"] for each in lines if "metaData" in each][-1]
    metadata["schemaString"] = metadata["schemaString"].replace('"name":"v"', '"name":"w"')
    changes = [{"commitInfo": {"operation": "RENAME COLUMN"}}, {"metaData": metadata}]
    place = entries[-1].with_name(f"{len(entries):020d}.json")
    place.write_text("\n".join(map(json.dumps, changes)))
    with pytest.raises(TableError, match=r"w is v there.*RENAME COLUMN"):
        follow()


def test_key_and_time_are_the_tables_unless_given(first, follow):
    some(first, 0, (1, 10, "a"))
    options = follow().options
    assert (options.key, options.time, options.progress) == (("k",), "t", "from_table")
    options = follow(key="v", watermark="bounded").options
    assert (options.key, options.time, options.progress) == (("v",), "t", "bounded")


def test_what_the_table_promises_is_passed_on(first, follow):
    # Of several feeds the least.
    first.batch(0, [first.rows([(1, 10, "a")]), first.punctuation(8), first.punctuation(9, feed="other")])
    follower = follow()
    assert promises(follower.rows()) == [8]
    first.batch(1, [first.rows([(1, 30, "b")], seq=1)])
    assert promises(follower.rows()) == []
    # A commit that brings no row, and a bound far beyond all rows.
    far = 10**15
    first.batch(2, [first.punctuation(far), first.punctuation(far + 1, feed="other")])
    rows = follower.rows()
    assert (plain(rows), promises(rows)) == ([], [far])
    first.batch(3, [first.rows([(5, 20, "late")], seq=5)])
    follower.rows()
    assert follower.offset["progress"][str(first.path)]["late"] == 1


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone.utc)),
        (pa.date32(), dt.date(2024, 1, 2)),
        (pa.float64(), 1.5),
    ],
)
def test_promises_in_every_kind_of_time(first, kind, bound):
    first.columns = pa.schema([("k", pa.int64()), ("t", kind), ("v", pa.string())])
    first.batch(0, [first.rows([(1, bound, "a")]), first.punctuation(bound)])
    found = promises(Follower(first.path, timeFormat="epoch_s" if pa.types.is_floating(kind) else "").rows())
    assert found == [bound]


def test_ends_when_all_feeds_of_the_table_have_ended(first, follow):
    first.batch(0, [first.rows([(1, 10, "a")]), first.punctuation(None)])
    follower = follow()
    assert promises(follower.rows()) == [None]
    assert follower.offset["ended"] == [str(first.path)]
    first.batch(1, [first.rows([(1, 20, "b")], seq=5, feed="another"), first.punctuation(15, feed="another")])
    assert plain(follower.rows()) == [(1, 20, "b", False)]
    assert follower.offset["ended"] == []


def test_limits_are_of_whole_commits_and_of_files_of_the_snapshot(first, follow):
    some(first, 0, *((key, 1, "a") for key in range(20)))
    follower = follow(maxRowsPerTrigger="3")
    sizes = []
    while (tasks := follower.take()) is not None:
        sizes.append(sum(batch.num_rows for task in tasks for batch in task))
        follower.restart()
    assert len(sizes) == len(first.live_files())
    assert sum(sizes) == 20 + 1, "the rows, and punctuation: the table has rows and promises nothing"
    for batch_id in range(1, 6):
        some(first, batch_id, (0, 10 * batch_id, "b"), (1, 10 * batch_id, "c"))
    follower = follow(maxRowsPerTrigger="5")
    follower.rows()
    for batch_id in range(6, 11):
        some(first, batch_id, (0, 10 * batch_id, "b"), (1, 10 * batch_id, "c"))
    end = follower.plan()
    assert (end["position"]["version"], sum(each["span"] for each in end["ranges"])) == (8, 4)
    assert len(follower.rows()) == 10


def test_maintenance_is_passed_over_once(first, begun):
    follower = begun()
    some(first, 1, (1, 11, "b"))
    DeltaTable(str(first.path)).optimize.compact()
    DeltaTable(str(first.path)).optimize.z_order(["k"])
    DeltaTable(str(first.path)).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert plain(follower.rows()) == [(1, 11, "b", False)]
    assert follower.offset["position"]["version"] == first.version()
    some(first, 2, (2, 1, "c"))
    assert plain(follower.rows()) == [(2, 1, "c", False)]


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.delete("k = 1"),
        lambda table: table.update({"v": "'x'"}, predicate="k = 1"),
        lambda table: table.restore(1),
    ],
)
def test_changes_by_others_are_refused(first, follow, change):
    some(first, 0, (1, 10, "a"), (2, 10, "b"))
    some(first, 1, (1, 11, "a2"))
    follower = follow()
    follower.rows()
    change(DeltaTable(str(first.path)))
    with pytest.raises(FeedChangedError, match=r"version 3 .* not committed by"):
        follower.take()
    assert plain(follow().rows()) == sorted((k, *rest, False) for k, rest in first.latest().items())


def test_deletions_outlive_the_tombstones_that_replace_them(first, begun):
    follower = begun(*((key, 10, "a") for key in range(8)))
    for key in range(8):
        first.batch(key + 1, [gone(first, [(key, 20 + key, None)], 100 + key)])
    DeltaTable(str(first.path)).vacuum(retention_hours=168, dry_run=False, full=True)
    assert plain(follower.rows()) == [(key, 20 + key, None, True) for key in range(8)]


@pytest.mark.parametrize("lost", ["files", "log entry"])
def test_what_is_gone_before_it_was_read_is_an_error(first, begun, lost):
    follower = begun(punctuation="false")
    some(first, 1, (1, 11, "b"))
    some(first, 2, (1, 12, "c"))
    table = DeltaTable(str(first.path))
    if lost == "files":
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    else:
        table.create_checkpoint()
        for version in (0, 1, 2):
            (first.path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(FeedChangedError, match=rf"{lost if lost != 'files' else ''}.*version 2 .* is gone"):
        follower.read(follower.plan())


@pytest.mark.parametrize("batches", [1, 3])
def test_a_table_made_anew_under_the_path(first, follow, batches):
    some(first, 0, (1, 10, "a"))
    some(first, 1, (1, 11, "a"))
    follower = follow()
    follower.rows()
    shutil.rmtree(first.path)
    shutil.rmtree(first.checkpoint / "upstream-sink")  # by a query that knows nothing of the one before
    for batch_id in range(batches):
        some(first, batch_id, (1, 10, "a"))
    with pytest.raises(FeedChangedError, match="created again"):
        follower.take()


def test_frozen_it_sees_nothing_newer(first, follow):
    some(first, 0, (1, 10, "a"))
    follower = follow()
    follower.planner.freeze()
    some(first, 1, (1, 11, "b"))
    assert plain(follower.rows()) == [(1, 10, "a", False)]
    follower.restart()
    follower.planner.freeze()
    some(first, 2, (1, 12, "c"))
    assert plain(follower.rows()) == [(1, 11, "b", False)]


def test_without_a_time_arrival_decides_and_deletions_come_through(make_first):
    first = make_first(eventTime="")
    some(first, 0, (1, 10, "a"), (2, 10, "b"))
    follower = Follower(first.path, timeFormat="epoch_us", eventTime="t")
    assert follower.options.progress is None
    first.batch(1, [gone(first, [(2, None, None)], 100)])
    follower.rows()
    first.batch(2, [gone(first, [(1, None, None)], 100)])
    # The table has no time, so a deletion has that of its commit.
    assert plain(follower.rows()) == [(1, NOW_US + 1_000_000, None, True)]


def test_a_range_reads_no_more_than_the_last_rows(first, begun):
    follower = begun(*((key, 10, "a") for key in range(1000)))
    some(first, 1, (1, 11, "b"))
    (task,) = follower.read(follower.plan())
    assert sum(batch.num_rows for batch in task) == 1


def test_what_cannot_be_read_is_refused(tmp_path, first, follow):
    with pytest.raises(OptionError, match="no Delta table"):
        Follower(tmp_path / "nothing")
    DeltaTable.create(str(tmp_path / "other"), pa.schema([("k", pa.int64())]))
    with pytest.raises(TableError, match="not made by"):
        Follower(tmp_path / "other")
    some(first, 0, (1, 10, "a"))
    for word, options in (("punctuation", {"watermark": "embedded"}), ("maxBytes", {"maxBytesPerTrigger": "1 MB"})):
        with pytest.raises(OptionError, match=word):
            follow(**options)
    with pytest.raises(SchemaError, match="no column 'w'"):
        follow().reading.connector.fix_schema(pa.schema([("w", pa.int64())]))


HOUR = 3_600_000_000
KEYS = 12


def maintained(sink: Any, keep: int) -> MaintenanceResult:
    """As if a version had been committed each hour, and `keep` of them were to be kept."""
    now_us = time.time_ns() // 1000
    last = sink.version()
    log = sink.path / "_delta_log"
    for place in log.glob("*.json"):
        when = (now_us - (last - int(place.name[:20])) * HOUR) / 1e6
        os.utime(place, (when, when))
        for line in place.read_text().splitlines():
            path = json.loads(line).get("add", {}).get("path")
            if path is not None and (sink.path / path).exists():
                os.utime(sink.path / path, (when, when))
    table = DeltaTable(str(sink.path))
    return TableMaintenance(TableFolder(str(sink.path)), table, MaintenanceRules(keep * HOUR), lambda: now_us).run(
        whole=True
    )


def change(sink: Any, batch_id: int, model: dict[int, int]) -> None:
    """Some keys get a newer row, one is deleted."""
    changed = [(batch_id * step) % KEYS for step in (1, 5)]
    gone = (batch_id * 7 + 3) % KEYS
    rows = [(key, batch_id, str(batch_id)) for key in dict.fromkeys(changed) if key != gone] + [(gone, batch_id, None)]
    deleted = np.array([row[2] is None for row in rows])
    sink.batch(batch_id, [sink.rows(rows, seq=batch_id * 100, deleted=deleted)])
    for key, at, value in rows:
        model.pop(key, None)
        if value is not None:
            model[key] = at


def apply(model: dict[int, int], rows: list[Any]) -> None:
    for row in rows:
        if row[SYSTEM]["punctuation"]:
            continue
        assert model.get(row["k"], -1) < row["t"], "a change came twice, or an older one over a newer"
        if row[SYSTEM]["deleted"]:
            model.pop(row["k"], None)
        else:
            model[row["k"]] = row["t"]


def test_a_follower_within_the_retention_gets_every_change_once_over_maintenance(first: Any, follow: Any) -> None:
    table: dict[int, int] = {}
    first.batch(0, [first.rows([(key, 0, "0") for key in range(KEYS)])])
    table.update(dict.fromkeys(range(KEYS), 0))
    follower, mine = follow(), dict[int, int]()
    apply(mine, follower.rows())
    removed = 0
    for number in range(1, 40):
        change(first, number, table)
        if number % 4 == 0:
            removed += maintained(first, keep=6).files
        if number % 5 == 0:  # never more than six versions behind
            apply(mine, follower.rows())
            assert mine == table
    assert removed > 20
    assert {key: row[0] for key, row in first.latest().items()} == table


def test_dead_letters_are_followed(tmp_path):
    def append(writer: str, number: int, *values: int) -> None:
        task = DeadLetterWriter(TableFolder(str(tmp_path)), writer, number)
        task.write(letters_of(pa.table({"k": list(values)}), batch=number, origin="here", reason="late"))
        task.commit()

    def letters() -> list[str]:
        return sorted(row["payload"] for row in follower.rows())

    append("one", 0, 1, 2)
    follower = Follower(tmp_path, timeFormat="")
    assert letters() == ['{"k":1}', '{"k":2}']
    append("one", 0, 1, 2)
    append("two", 0, 3)
    append("one", 1, 4)
    assert letters() == ['{"k":3}', '{"k":4}']
    DeltaTable(str(tmp_path)).optimize.compact()
    follower.restart()
    append("one", 2, 5)
    assert letters() == ['{"k":5}']
    DeltaTable(str(tmp_path)).delete("batch = 1")
    with pytest.raises(FeedChangedError, match="changed rows"):
        follower.take()
