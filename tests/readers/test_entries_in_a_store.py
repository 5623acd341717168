"""Entries of our own in the log of a table in an object store, and what needs them."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.races import commit_between

from upstream.conf.errors import EnvironmentMissingError, TableError
from upstream.delta_format.deletion_vectors import VECTORS
from upstream.delta_format.log import LogReplay, entry_place
from upstream.sink.admin.check import check_table
from upstream.sink.admin.layout_change import rebucket_table
from upstream.sink.admin.repair import repair_table
from upstream.sink.maintenance.runner import TableMaintenance
from upstream.sink.merge import engines as folding
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.table import table
from upstream.sink.table.log_entry import put_entry
from upstream.storage import object_store
from upstream.storage.folder import TableFolder

from .stored import StoredSink


@pytest.fixture
def marking(stored, monkeypatch):
    """Sinks that mark rows as dead, however few there are."""
    monkeypatch.setattr(folding, "_FREE_ROWS", 0)
    monkeypatch.setattr(folding, "_FREE_SHARE", 2)

    def make(query_id="query-1", **more):
        sink = stored(query_id, **more)
        own = {"key": "k", "eventTime": "t", "buckets": "2", "engine": "vectors"}
        sink.options = own | {"indexLocation": str(sink.folder / "index")}
        sink.metrics = False
        return sink

    return make


def filled(sink: StoredSink, keys: int = 60) -> dict[int, tuple[int, str]]:
    """A first batch, and one that takes rows out of it."""
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(keys)])])
    sink.batch(1, [sink.rows([(0, 2, "b"), (1, 2, "b")], seq=100)])
    assert vectors_of(sink)
    return dict.fromkeys(range(2, keys), (1, "a")) | {0: (2, "b"), 1: (2, "b")}


def vectors_of(sink: StoredSink) -> set[str]:
    """The files of the vectors that the table has."""
    log = LogReplay(sink.place)
    log.follow(sink.stored().version())
    return {vector.path for vector in log.vectors().values() if vector.path is not None}


def test_an_entry_that_somebody_else_has_written_is_not_overwritten(marking, monkeypatch):
    """Both queries mark rows: the second to come looks again, and writes its entry after the other."""
    sink, other = marking("one"), marking("other")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(60)])])
    rows = sink.table()
    buckets = dict(zip(rows.column("k").to_pylist(), rows.column("_upstream_bucket").to_pylist(), strict=True))
    theirs = next(key for key in buckets if buckets[key] != buckets[4])
    results = sink.tasks([sink.rows([(4, 11, "mine")], seq=1000)])
    commit_between(monkeypatch, lambda: other.batch(0, [other.rows([(theirs, 12, "theirs")], seq=1000)]))
    assert sink.commit(results, 1) is not None
    assert sink.latest() == dict.fromkeys(range(60), (1, "a")) | {4: (11, "mine"), theirs: (12, "theirs")}
    assert {path for path in sink.objects() if path.startswith(VECTORS)} == vectors_of(sink), "what was in vain is gone"


def test_of_many_who_put_one_entry_exactly_one_does(stored, unreliable_store):
    folders = [stored(endpoint_url=unreliable_store.address).place for _ in range(4)]
    assert folders[0].puts_refused() is None
    for version in range(5):
        start = threading.Barrier(len(folders))

        def put(folder, version=version, start=start):
            start.wait()
            return put_entry(folder, version, {"operation": "TEST", "writer": "one of them"}, [])

        with ThreadPoolExecutor(len(folders)) as pool:
            assert sorted(pool.map(put, folders)) == [False, False, False, True]
        assert folders[0].read(entry_place(version)).count(b'"writer"') == 1


@pytest.mark.parametrize("fault", ["forgotten", "lost", "failed", "conflict", "late"])
def test_an_answer_that_is_lost_is_not_taken_for_somebody_elses_entry(stored, unreliable_store, fault):
    folder = stored(endpoint_url=unreliable_store.address).place
    assert folder.puts_refused() is None
    unreliable_store.spoil(fault)
    assert folder.put_new(entry_place(0), b"ours")
    assert unreliable_store.spoilt() == 1
    assert folder.read(entry_place(0)) == b"ours"
    unreliable_store.spoil(fault)
    assert not folder.put_new(entry_place(0), b"theirs")
    assert folder.read(entry_place(0)) == b"ours"


def test_what_is_never_answered_nor_there_is_an_error(stored, unreliable_store):
    folder = stored(endpoint_url=unreliable_store.address, max_retries="0").place
    assert folder.puts_refused() is None
    unreliable_store.spoil("failed", 99)
    with pytest.raises(OSError, match="error sending request"):
        folder.put_new(entry_place(0), b"ours")
    assert unreliable_store.spoilt() == 3, "it was tried again, each time the store was found without it"
    assert not folder.has(entry_place(0))


def test_what_was_committed_without_an_answer_is_in_the_table_once(marking, unreliable_store):
    expected = filled(marking())
    sink = marking(endpoint_url=unreliable_store.address)
    results = sink.tasks([sink.rows([(1, 3, "c"), (99, 3, "new")], seq=200)])
    unreliable_store.spoil("forgotten", 2)
    summary = sink.commit(results, 2)
    assert summary is not None
    assert summary.applied == 2
    assert rebucket_table(sink.address, 1, storage=sink.storage) == 4
    assert unreliable_store.spoilt() == 2
    assert sink.latest() == expected | {1: (3, "c"), 99: (3, "new")}
    assert check_table(sink.address, storage=sink.storage).healthy


def test_files_stay_where_nobody_knows_whether_they_are_committed(marking, unreliable_store, monkeypatch):
    """The entry is there, no answer comes, and nothing can be read for a while."""
    sink = marking()
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(60)])])
    expected = sink.latest()
    through = {**sink.storage, "endpoint_url": unreliable_store.address, "max_retries": "1"}
    real = TableFolder.read

    def silent(folder: TableFolder, path: str) -> bytes:
        if path == entry_place(2):
            raise OSError("no answer")
        return real(folder, path)

    unreliable_store.spoil("lost", 99)
    with monkeypatch.context() as patched:
        patched.setattr(TableFolder, "read", silent)
        with pytest.raises(TableError, match="no answer"):
            rebucket_table(sink.address, 3, storage=through)
    assert sink.stored().version() == 2
    assert sink.latest() == expected


def test_a_store_that_passes_over_conditions_is_found_out(marking, unreliable_store, caplog):
    unreliable_store.spoil("blind", 0)
    sink = marking(endpoint_url=unreliable_store.address)
    with pytest.raises(TableError, match="If-None-Match"):
        sink.writer()
    sink.options = {**sink.options, "engine": "auto"}
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    assert sink.latest() == {1: (1, "a")}
    assert not [path for path in sink.objects() if "put_if_absent" in path]
    assert "overwrites an object" in caplog.text


def test_without_the_package_buckets_are_written_anew(marking, monkeypatch):
    monkeypatch.setattr(table, "WORTH_MARKING", 1)
    monkeypatch.setattr(object_store, "_tried", {})
    monkeypatch.setitem(sys.modules, "obstore", None)
    sink = marking()
    with pytest.raises(EnvironmentMissingError, match="obstore"):
        sink.writer()
    sink.options = {**sink.options, "engine": "auto"}
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(9)])])
    sink.batch(1, [sink.rows([(0, 2, "b")], seq=100)])
    assert not vectors_of(sink)
    with pytest.raises(EnvironmentMissingError, match="obstore"):
        rebucket_table(sink.address, 3, storage=sink.storage)
    assert sink.latest() == dict.fromkeys(range(1, 9), (1, "a")) | {0: (2, "b")}


def test_damage_is_found_and_mended(marking):
    sink = marking()
    expected = filled(sink)
    victim = min(path for path in sink.objects() if path.startswith("_upstream_bucket=0/"))
    sink.place.remove([victim])
    found = check_table(sink.address, storage=sink.storage)
    assert any(victim in finding.text and finding.mends for finding in found.findings)
    done = repair_table(sink.address, storage=sink.storage, force=True)
    assert any(victim in text for text in done.done)
    assert check_table(sink.address, storage=sink.storage).healthy
    held = sink.latest()
    assert 0 < len(held) < len(expected)
    assert held.items() <= expected.items()


def test_maintenance_keeps_the_vectors_that_are_in_use(marking):
    sink = marking()
    expected = filled(sink)
    first = vectors_of(sink)
    sink.batch(2, [sink.rows([(2, 5, "d"), (3, 5, "d")], seq=200)])
    expected |= {2: (5, "d"), 3: (5, "d")}
    rules = MaintenanceRules(retention_us=1_000_000, versions=1, budget_s=60.0, every=1)
    later = time.time_ns() // 1000 + 30 * 86_400_000_000
    for _ in range(2):  # what comes before a checkpoint may go with the next maintenance
        done = TableMaintenance(sink.place, sink.stored(), rules, lambda: later).run(whole=True)
    assert done.failed is None
    left = {path for path in sink.objects() if path.startswith(VECTORS)}
    assert left == vectors_of(sink)
    assert first - left, "those of old versions are gone"
    assert sink.latest() == expected
    sink.batch(3, [sink.rows([(7, 9, "e")], seq=900)])
    assert sink.latest() == expected | {7: (9, "e")}


@pytest.mark.parametrize(
    "named",
    [
        {"AWS_ENDPOINT_URL": "{}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a",
         "AWS_SECRET_ACCESS_KEY": "b"},
        {"aws_endpoint": "{}", "allow_http": "TRUE", "aws_default_region": "us-east-1", "access_key_id": "a",
         "secret_access_key": "b"},
        {"endpoint": "{}", "allow_http": "1", "timeout": "20s", "connect_timeout": "5s", "access_key_id": "a",
         "secret_access_key": "b", "max_retries": "3", "retry_timeout": "10s", "backoff_config.init_backoff": "50ms",
         "backoff_config.max_backoff": "1s", "backoff_config.base": "2", "allow_unsafe_rename": "false",
         "conditional_put": "etag", "unheard_of": "x"},
    ],
)  # fmt: skip
def test_options_are_those_of_delta_rs(marking, storage, named):
    """Whatever delta-rs takes: names in each spelling, of the client, of retries, and such as it passes over."""
    sink = marking()
    sink.storage = {name: value.format(storage["endpoint_url"]) for name, value in named.items()}
    assert sink.place.puts_refused() is None
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    assert sink.place.put_new(entry_place(9), b"1")
    assert not sink.place.put_new(entry_place(9), b"2")
