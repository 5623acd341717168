"""One query at a time: a second one is refused while the first lives, and let in as soon as it does not."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from kit.waiting import wait_for

from upstream.conf.errors import TableError
from upstream.conf.process_identity import Process, driver_process
from upstream.sink.commit.lease import PLACE, LeaseKeeper, TableLease
from upstream.storage.folder import TableFolder
from upstream.storage.lease import Lease

S = 1_000_000
FIRST = f"{1:020d}.json"
TERM = 60 * S
HERE = driver_process()
ELSEWHERE = Process("elsewhere", "another machine", 7, 7)


@pytest.fixture
def folder(tmp_path):
    return TableFolder(str(tmp_path / "table"))


def test_a_second_query_is_refused_until_the_first_renews_no_more(folder):
    TableLease(folder).hold("first", ELSEWHERE, TERM, 0)
    with pytest.raises(TableError, match="written by another query, first, of process 7 on elsewhere") as caught:
        TableLease(folder).hold("second", HERE, TERM, 50 * S)
    assert "can start in 25.0 s, or at once after `upstream release" in caught.value.hint
    TableLease(folder).hold("first", ELSEWHERE, TERM, 50 * S)
    with pytest.raises(TableError, match="1970-01-01T00:00:50"):
        TableLease(folder).hold("second", HERE, TERM, 124 * S)
    TableLease(folder).hold("second", HERE, TERM, 125 * S)
    with pytest.raises(TableError, match="another query, second"):  # it was idle for too long, and says so
        TableLease(folder).hold("first", ELSEWHERE, TERM, 126 * S)


def test_a_restarted_query_goes_on_at_once_wherever_it_is(folder):
    TableLease(folder).hold("first", ELSEWHERE, TERM, 0)
    TableLease(folder).hold("first", HERE, TERM, 1)
    assert TableLease(folder).read() == Lease("first", HERE, 0, 1, TERM)


def test_a_process_that_is_gone_holds_nothing(folder):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = Process.of(child.pid)
        TableLease(folder).hold("first", process, TERM, 0)
        with pytest.raises(TableError):
            TableLease(folder).hold("second", HERE, TERM, 1)
        child.send_signal(signal.SIGSTOP)  # it lives, if barely
        assert not process.is_gone()
        child.kill()
        wait_for(process.is_gone)
        TableLease(folder).hold("second", HERE, TERM, 2)
    assert TableLease(folder).read() == Lease("second", HERE, 2, 2, TERM)


def test_numbers_of_processes_that_are_used_again_mean_nothing():
    assert dataclasses.replace(HERE, started=HERE.started + 1).is_gone()
    assert not dataclasses.replace(HERE, machine="another", started=1).is_gone()
    assert not dataclasses.replace(HERE, machine="").is_gone()
    assert not HERE.is_gone()


@given(
    steps=st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 90 * S)), max_size=30),
    skews=st.tuples(*[st.integers(0, TERM // 4)] * 3),
)
def test_never_two_hold_it_while_clocks_differ_by_less_than_the_allowance(tmp_path_factory, steps, skews):
    folder = TableFolder(str(tmp_path_factory.mktemp("lease")))
    skew = dict(zip("abc", skews, strict=True))
    wrote: dict[str, int] = {}
    now = 0
    for name, passed in steps:
        now += passed
        try:
            TableLease(folder).hold(name, ELSEWHERE, TERM, now + skew[name])
        except TableError:
            continue
        assert all(now - at >= TERM * 2 // 3 for other, at in wrote.items() if other != name)
        wrote[name] = now


def test_nothing_is_written_between_renewals(folder):
    TableLease(folder).hold("first", HERE, TERM, 0)
    TableLease(folder).hold("first", HERE, TERM, 19 * S)
    assert TableLease(folder).read() == Lease("first", HERE, 0, 0, TERM)
    TableLease(folder).hold("first", HERE, TERM, 20 * S)
    assert TableLease(folder).read() == Lease("first", HERE, 0, 20 * S, TERM)
    assert [name for name in os.listdir(os.path.join(folder.location, PLACE)) if name[0] != "."] == [FIRST]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"query_id": "x"}', "null"])
def test_a_broken_lease_is_none(folder, content):
    os.makedirs(os.path.join(folder.location, PLACE))
    Path(folder.location, PLACE, FIRST).write_text(content)
    assert TableLease(folder).read() is None
    TableLease(folder).hold("first", HERE, TERM, 0)
    assert TableLease(folder).release() == Lease("first", HERE, 0, 0, TERM)
    with pytest.raises(TableError, match="there is no table"):
        TableLease(folder).release()


def test_a_folder_that_cannot_be_written_to(folder):
    Path(folder.location).write_text("a file")
    with pytest.raises(TableError, match=r"cannot be written to _upstream_lease"):
        TableLease(folder).hold("first", HERE, TERM, 0)


def test_in_a_store_that_puts_over_what_is_there_the_one_that_wrote_last_has_it(folder, monkeypatch):
    class Store(TableLease):
        def __init__(self, folder):
            super().__init__(folder)
            self._exclusive = False

    put = Store._put

    def race(*given: Any) -> bool:
        monkeypatch.undo()
        put(*given)
        return Store(folder)._put(given[1], Lease("second", HERE, 0, 0, TERM))

    monkeypatch.setattr(Store, "_put", race)
    with pytest.raises(TableError, match="another query, second"):
        Store(folder).hold("first", HERE, TERM, 0)


def test_the_keeper_renews_what_runs_and_gives_up_what_has_ended(folder):
    now = [0]
    keeper = LeaseKeeper(HERE, lambda: (), lambda: now[0])
    assert keeper.look_at(folder, ["first"]) is None
    TableLease(folder).hold("first", HERE, TERM, 0)
    for minute in range(1, 60):  # an hour without a batch
        now[0] = minute * TERM
        keeper.look_at(folder, ["first"])
        with pytest.raises(TableError):
            TableLease(folder).hold("second", ELSEWHERE, TERM, now[0] + TERM)
    keeper.look_at(folder, [])
    TableLease(folder).hold("second", ELSEWHERE, TERM, now[0])
    keeper.look_at(folder, ["first"])  # another driver's is none of its business
    assert TableLease(folder).read() == Lease("second", ELSEWHERE, now[0], now[0], TERM)


def test_the_keepers_thread_ends_with_spark(folder):
    stopped: list[bool] = []

    def running() -> list[str]:
        if stopped:
            raise RuntimeError("stopped")
        return ["first"]

    before = set(threading.enumerate())
    keeper = LeaseKeeper(HERE, running, lambda: 40 * TERM)
    TableLease(folder).hold("first", HERE, TERM, 0)
    keeper.add(TableFolder(folder.location + "2"), S)
    (thread,) = set(threading.enumerate()) - before
    keeper.add(folder, S)
    wait_for(lambda: (found := TableLease(folder).read()) and found.renewed_us == 40 * TERM)
    stopped.append(True)
    wait_for(lambda: not thread.is_alive())


def test_the_sink_refuses_before_any_row_is_read(make_sink):
    first = dataclasses.replace(make_sink(), lease="1 minute")
    second = dataclasses.replace(make_sink(query_id="query-2"), lease="1 minute")
    first.batch(0, [first.rows([(1, 10, "a")])])
    with pytest.raises(TableError, match="written by another query, query-1"):
        second.writer()
    assert first.batch(1, [first.rows([(1, 11, "b")], seq=5)]) is not None
    TableLease(TableFolder(str(first.path))).release()
    second.batch(0, [second.rows([(1, 12, "c")], seq=9)])
    with pytest.raises(TableError, match="written by another query, query-2"):
        first.writer()
    assert first.latest() == {1: (12, "c")}


def test_readers_and_vacuum_pass_over_it(make_sink):
    sink = dataclasses.replace(make_sink(), lease="1 minute")
    sink.batch(0, [sink.rows([(1, 10, "a")])])
    table = DeltaTable(str(sink.path))
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert (sink.path / PLACE).exists()
    assert sink.latest() == {1: (10, "a")}
