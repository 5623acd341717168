"""Maintenance of a table on the disk: what goes, what stays, and that it may end anywhere."""

import itertools
import json
import os
import random
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from kit.deaths import ProcessDied
from kit.invalid_text import not_utf_8
from kit.tables import read_by_key

from upstream.sink.figures.summary import read_summaries
from upstream.sink.maintenance import removal
from upstream.sink.maintenance import runner as upkeep_module
from upstream.sink.maintenance.runner import TableMaintenance, maintain
from upstream.sink.merge import engines as engine_module
from upstream.sink.spec import maintenance_rules as maintenance_module
from upstream.sink.spec.maintenance_rules import MaintenanceResult, MaintenanceRules
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table import table
from upstream.storage.folder import TableFolder

ENGINES = ("rewrite", "vectors")

DAY = 86_400_000_000
HOUR = 3_600_000_000


def at(sink: Any, version: int) -> dict[int, tuple[Any, ...]]:
    return read_by_key(sink.path, "k", "t", "v", version=version)


def age(sink: Any, versions: range, now_us: int, step_us: int = HOUR) -> None:
    """As if the versions had been committed one step after the other, the last one now."""
    for version in versions:
        when = (now_us - (versions[-1] - version) * step_us) / 1e6
        place = sink.path / "_delta_log" / f"{version:020d}.json"
        for line in place.read_text().splitlines():
            action = json.loads(line)
            named = [action["add"]["path"]] if "add" in action else []
            applied = action.get("commitInfo", {}).get("upstreamApplied", {})
            for path in [*named, *applied.get("deletions", {})]:
                os.utime(sink.path / path, (when, when))
        os.utime(place, (when, when))


def write(sink: Any, batches: range) -> None:
    for number in batches:
        deleted = [key == number % 8 for key in range(8)]
        rows = [(key, number, f"v{number}") for key in range(8)]
        sink.batch(number, [sink.rows(rows, seq=number * 10, deleted=deleted)])


def upkeep(sink: Any, rules: MaintenanceRules, now_us: int, **more: Any) -> TableMaintenance:
    return TableMaintenance(TableFolder(str(sink.path)), DeltaTable(str(sink.path)), rules, lambda: now_us, **more)


def checkpoint_every(sink: Any, batches: range, every: int) -> None:
    for number in batches:
        write(sink, range(number, number + 1))
        if sink.version() % every == 0:
            DeltaTable(str(sink.path)).create_checkpoint()


def aged(make_sink: Any, batches: int) -> tuple[Any, int]:
    """A table with a checkpoint for every five versions, one an hour, and the time of the last."""
    sink, now = make_sink(maintenance="off"), time.time_ns() // 1000
    checkpoint_every(sink, range(batches), every=5)
    age(sink, range(batches + 1), now)
    return sink, now


def test_versions_past_the_retention_go_with_their_files_and_others_stay(make_sink):
    sink, now = aged(make_sink, 30)
    held = {version: at(sink, version) for version in (20, 22, 27, 30)}
    rules = MaintenanceRules(8 * HOUR, every=5)
    done = upkeep(sink, rules, now).run()
    assert done.oldest == 22, "23 took its place 7 hours ago"
    assert done.entries == 20
    assert not done.left
    log = sorted(os.listdir(sink.path / "_delta_log"))
    assert log[0] == f"{20:020d}.checkpoint.parquet"
    # The properties are a version too.
    assert {version: at(sink, version) for version in held} == held
    assert at(sink, 31) == held[30]
    live = set().union(*(sink.live_files(version) for version in range(20, 32)))
    tombstone_files = {path for version in range(20, 31) for path in deletions(sink, version)}
    remembered = {path for path in sink.files() if path.startswith("_upstream_tombstones/")}
    assert sink.files() == live | tombstone_files | remembered
    # Again: nothing is left to do.
    again = upkeep(sink, rules, now).run()
    assert (again.entries, again.files, again.orphans, again.properties) == (0, 0, 0, False)


def deletions(sink: Any, version: int) -> list[str]:
    info = json.loads((sink.path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()[0])["commitInfo"]
    return list(info.get("upstreamApplied", {}).get("deletions", {}))


def test_the_number_of_versions_binds_however_young_they_are(make_sink):
    sink = make_sink(maintenance="off")
    checkpoint_every(sink, range(24), every=4)
    now = time.time_ns() // 1000
    done = upkeep(sink, MaintenanceRules(7 * DAY, versions=6), now).run()
    assert done.oldest == 19
    assert done.entries == 16
    recorded = DeltaTable(str(sink.path)).metadata().configuration
    assert recorded["delta.deletedFileRetentionDuration"] == "interval 3600 seconds"
    assert at(sink, 19)
    assert at(sink, 25) == at(sink, 24)


def test_without_a_checkpoint_that_is_old_enough_nothing_goes(make_sink):
    sink = make_sink(maintenance="off")
    write(sink, range(6))
    files, now = sink.files(), time.time_ns() // 1000 + 30 * DAY
    done = upkeep(sink, MaintenanceRules(DAY), now).run()
    assert (done.oldest, done.entries, done.files) == (0, 0, 0)
    assert done.checkpoint
    assert sink.files() == files
    # The next time there is one.
    assert upkeep(sink, MaintenanceRules(DAY), now + 2 * DAY).run().entries == 7
    assert sink.files() < files


def test_ended_anywhere_it_goes_on_and_readers_never_notice(make_sink, monkeypatch):
    sink, now = aged(make_sink, 20)
    rules = MaintenanceRules(5 * HOUR, every=5)
    promised = {version: at(sink, version) for version in (15, 20)}
    monkeypatch.setattr(removal, "_CHUNK", 4)
    removed = TableFolder._remove
    chance = random.Random(5)
    rounds = 0

    def maybe(folder: TableFolder, path: str) -> None:
        if chance.random() < 0.1:
            raise ProcessDied
        removed(folder, path)

    while True:
        rounds += 1
        monkeypatch.setattr(TableFolder, "_remove", maybe if rounds < 25 else removed)
        try:
            done = upkeep(sink, rules, now).run()
        except ProcessDied:
            assert {version: at(sink, version) for version in promised} == promised
            continue
        break
    assert rounds > 5
    assert {version: at(sink, version) for version in promised} == promised
    names = sorted(int(name[:20]) for name in os.listdir(sink.path / "_delta_log") if name.endswith(".json"))
    assert names == list(range(names[0], sink.version() + 1)), "no gap"
    assert names[0] == 15
    fresh = {path for version in range(15, sink.version() + 1) for path in sink.live_files(version)}
    data = {path for path in sink.files() if path.startswith("_upstream_bucket")}
    assert data == fresh
    assert done.oldest >= 15


def test_time_that_runs_out_leaves_the_rest_for_the_next_time(make_sink, monkeypatch):
    sink, now = aged(make_sink, 20)
    monkeypatch.setattr(removal, "_CHUNK", 4)
    entries, rounds = [], 0
    while rounds == 0 or entries[-1][1]:
        rounds += 1
        ticks = itertools.count()  # each look at the clock takes a second
        done = upkeep(sink, MaintenanceRules(5 * HOUR, budget_s=2, every=5), now, seconds=ticks.__next__).run()
        entries.append((done.entries, done.left))
        assert rounds < 20
    assert rounds > 1
    assert sum(count for count, _ in entries) == 15


def test_orphans_go_when_no_batch_can_still_name_them(make_sink):
    sink, now = aged(make_sink, 20)
    staged = sink.tasks([sink.rows([(key, 99, "never committed") for key in range(8)], seq=900)])
    orphans = {file.path for result in staged for file in result.staged}
    sink.batch(20, [sink.rows([(1, 100, "x")], seq=1000)])
    stray = sink.path / "_upstream_tombstones" / "77.json"
    stray.write_text("{}")
    # A process died while it put an entry of the log.
    put = sink.path / "_delta_log" / ".8d0b4c2e-4f6a-4f7c-9a3e-0d1f2a3b4c5d.tmp"
    put.write_text("{}")
    notes = sink.path / "_upstream_bucket=0" / "notes.txt"
    notes.write_text("mine")
    rules = MaintenanceRules(5 * HOUR, every=5)
    assert upkeep(sink, rules, now).run(whole=True).orphans == 0, "a batch may be about to commit them"
    for path in [*(sink.path / each for each in orphans), stray, put, notes]:
        os.utime(path, ((now - 40 * HOUR) / 1e6,) * 2)
    dry = upkeep(sink, rules, now, dry=True).run(whole=True)
    assert dry.orphans == len(orphans) + 2
    assert orphans <= sink.files()
    rows = sink.latest()
    done = upkeep(sink, rules, now).run(whole=True)
    assert done.orphans == len(orphans) + 2
    assert not orphans & sink.files()
    assert not stray.exists()
    assert not put.exists()
    assert notes.exists(), "no file of a table"
    assert sink.latest() == rows
    # What deletions are remembered by is there, however old: an older row does not come back.
    for path in (sink.path / "_upstream_tombstones").rglob("*.*"):
        os.utime(path, ((now - 400 * HOUR) / 1e6,) * 2)
    upkeep(sink, rules, now).run(whole=True)
    gone = set(range(8)) - set(rows)
    assert gone
    sink.batch(21, [sink.rows([(key, 0, "older") for key in gone], seq=2000)])
    assert sink.latest() == rows


def test_files_that_a_restore_brought_back_stay(make_sink):
    sink = make_sink(maintenance="off")
    checkpoint_every(sink, range(20), every=5)
    before = at(sink, 8)
    DeltaTable(str(sink.path)).restore(8)
    restored = sink.version()
    sink = make_sink(maintenance="off", query_id="after")  # the one before refuses to go on upon an older table
    sink.batch(20, [sink.rows([(key, 200, "over it") for key in range(8)], seq=2000)])  # the files are removed again
    now = time.time_ns() // 1000
    age(sink, range(restored + 2), now)
    rules = MaintenanceRules(5 * HOUR, every=5)
    done = upkeep(sink, rules, now).run()
    assert done.held is not None
    assert "RESTORE" in done.held
    assert (done.entries, done.files) == (0, 0)
    assert at(sink, restored) == before
    # Once nobody is promised a version before it, all goes as always.
    later = now + 9 * HOUR
    DeltaTable(str(sink.path)).create_checkpoint()
    for number in range(21, 27):
        write(sink, range(number, number + 1))
    for name in os.listdir(sink.path / "_delta_log"):
        os.utime(sink.path / "_delta_log" / name, (now / 1e6,) * 2)
    assert upkeep(sink, rules, later).run().entries > 0


def test_small_files_of_a_table_with_mapped_names_become_few(make_sink, monkeypatch):
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("a mapped name", pa.string())])
    sink = make_sink(columns, history="all", buckets="1", maintenance="off", engine="rewrite")
    for number in range(9):
        sink.batch(number, [sink.rows([(number, 1, "x")], seq=number)])
    rows, version, files, now = sink.latest(), sink.version(), sink.files(), time.time_ns() // 1000
    assert len(sink.live_files()) == 9
    with monkeypatch.context() as patched:
        patched.setattr(table, "put_entry", lambda *_: False)
        assert upkeep(sink, MaintenanceRules(), now).run().compacted == 0, "another program has written"
    assert sink.files() == files
    biggest = max((sink.path / file).stat().st_size for file in sink.live_files())
    with monkeypatch.context() as patched:
        patched.setattr(upkeep_module, "_SMALL", 4 * biggest + 1)
        done = upkeep(sink, MaintenanceRules(), now).run()
    assert done.compacted == 8, "two new files of four each; the ninth has nobody to go with"
    assert (len(sink.live_files()), sink.latest()) == (3, rows)
    actions = [
        json.loads(line) for line in (sink.path / "_delta_log" / f"{version + 2:020d}.json").read_text().splitlines()
    ]
    changes = [action[kind]["dataChange"] for action in actions for kind in ("add", "remove") if kind in action]
    assert changes == [False] * 10
    sink.batch(9, [sink.rows([(9, 1, "x")], seq=9)])
    assert sink.table().num_rows == 10


def test_small_files_with_text_that_is_not_utf_8_become_one(make_sink, monkeypatch):
    monkeypatch.setattr(engine_module, "_WORTH_KEEPING", 1)
    sink = make_sink(buckets="1", maintenance="off", engine="rewrite")
    for number in range(9):
        sink.batch(number, [not_utf_8(sink.rows([(number, 0, "x")], seq=number), "v")])
    assert len(sink.live_files()) == 9
    done = upkeep(sink, MaintenanceRules(DAY), time.time_ns() // 1000).run()
    assert (done.compacted, done.failed) == (9, None)
    (path,) = sink.live_files()
    assert pq.read_table(sink.path / path).column("v").cast(pa.binary()).to_pylist() == [b"\xff"] * 9


def test_a_query_looks_after_its_table_by_itself(make_sink, monkeypatch):
    monkeypatch.setattr(MaintenanceRules.__init__, "__defaults__", (7 * DAY, 40, 2.0, 10))
    monkeypatch.setattr(MaintenanceRules, "versions", 40)
    sink = make_sink(buckets="2")
    sizes: list[tuple[int, int]] = []
    for number in range(101):
        sink.batch(number, [sink.rows([(number % 40, number, "x")], seq=number)])
        if number % 10 == 0:
            sizes.append((len(os.listdir(sink.path / "_delta_log")), len(sink.files())))
    features = DeltaTable(str(sink.path)).protocol().writer_features or []
    assert set(features) <= {"appendOnly", "invariants", "deletionVectors"}, "none that nobody asked for"
    assert max(log for log, _ in sizes[6:]) <= 40 + 2 * 10 + 12
    assert max(files for _, files in sizes[6:]) <= 40 + 2 * 10 + 2
    reports = [summary.maintained for _, summary in read_summaries(str(sink.path)) if summary.maintained is not None]
    assert {each.checkpoint for each in reports} == {True}
    assert sum(each.files for each in reports) > 30
    assert all(each.failed is None for each in reports)
    assert sink.latest() == {key: (max(n for n in range(101) if n % 40 == key), "x") for key in range(40)}
    oldest = reports[-1].oldest
    assert len(at(sink, oldest)) == 40
    # Left to itself it is not touched, however much is due.
    sink = make_sink(maintenance="off", buckets="2")
    count = len(os.listdir(sink.path / "_delta_log"))
    for number in range(101, 114):
        sink.batch(number, [sink.rows([(1, number, "x")], seq=number)])
    assert len(os.listdir(sink.path / "_delta_log")) >= count + 13


def test_who_writes_without_saying_so_keeps_what_the_table_records(make_sink, monkeypatch):
    write(make_sink(retention="30 days", retentionVersions="5000"), range(2))
    monkeypatch.setattr(MaintenanceRules, "due", lambda *_: True)
    sink = make_sink(query_id="backfill")
    write(sink, range(2, 4))

    def recorded() -> dict[str, str]:
        return DeltaTable(str(sink.path)).metadata().configuration

    assert recorded()["delta.deletedFileRetentionDuration"] == f"interval {30 * 86_400} seconds"
    assert recorded()["upstream.retentionVersions"] == "5000"
    version = sink.version()
    write(make_sink(retention="2 days", query_id="third"), range(4, 5))
    assert sink.version() == version + 2, "what is said anew is recorded, once"
    assert recorded()["upstream.retentionSeconds"] == str(2 * 86_400)
    write(sink, range(5, 6))
    assert sink.version() == version + 3


def test_accounts_are_of_the_last_commit_alone(sink, monkeypatch):
    write(sink, range(2))
    target = parse_sink_options(sink.given)
    with monkeypatch.context() as patch:
        patch.setattr(MaintenanceRules, "due", lambda *_: True)
        done = maintain(target, DeltaTable(str(sink.path)))
    assert isinstance(done, MaintenanceResult)
    assert upkeep_module.last_maintained(str(sink.path)) == done
    assert maintain(target, DeltaTable(str(sink.path))) is None
    assert upkeep_module.last_maintained(str(sink.path)) is None


def test_a_table_that_somebody_else_made_is_left_to_him(make_sink, tmp_path, monkeypatch):
    theirs = tmp_path / "theirs"
    write_deltalake(str(theirs), pa.table({"a": [1]}))
    monkeypatch.setattr(MaintenanceRules, "due", lambda *_: True)
    target = parse_sink_options({**make_sink().given, "path": str(theirs)})
    assert maintain(target, DeltaTable(str(theirs))) is None
    assert DeltaTable(str(theirs)).version() == 0


def test_long_entries_get_checkpoints_before_maintenance_is_due(make_sink, engine, monkeypatch):
    sink = make_sink(engine=engine)
    write(sink, range(8))
    log = sink.path / "_delta_log"
    assert not list(log.glob("*.checkpoint.parquet"))
    longest = max(entry.stat().st_size for entry in log.glob("*.json"))
    monkeypatch.setattr(maintenance_module, "_LONG_LOG", 3 * longest)
    monkeypatch.setattr(upkeep_module, "_known", {})
    write(sink, range(8, 30))
    made = sorted(int(file.name[:20]) for file in log.glob("*.checkpoint.parquet"))
    assert made
    assert made[0] <= 9, "the entries that were there were counted"
    assert all(2 <= later - before <= 22 for before, later in itertools.pairwise(made)), made
    assert all(
        sum((log / f"{each:020d}.json").stat().st_size for each in range(before + 1, later + 1))
        >= (log / f"{before:020d}.checkpoint.parquet").stat().st_size
        for before, later in itertools.pairwise(made)
    )
    assert at(sink, sink.version())[29 % 7] is not None
    # Maintenance keeps its turn.
    monkeypatch.setattr(MaintenanceRules.__init__, "__defaults__", (604_800_000_000, 100, 2.0, 40))
    write(sink, range(30, 45))
    summaries = read_summaries(str(sink.path))
    assert [version for version, each in summaries if each.maintained is not None] != []
