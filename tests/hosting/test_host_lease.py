"""The lease of the job that hosts a checkpoint's queries, without Spark: a clock and processes of the test."""

import dataclasses
import os
import threading
from pathlib import Path

import pytest
from kit.waiting import wait_for

from upstream.conf.errors import CheckpointError
from upstream.conf.process_identity import Process
from upstream.hosting.host_lease import CheckpointLease, HostLease, writer_lease
from upstream.sink.commit.lease import TableLease
from upstream.storage.folder import TableFolder

S = 1_000_000
TERM = 60 * S
ELSEWHERE = Process("elsewhere", "another machine", 7, 7)
HERE = Process.of(os.getpid())


@pytest.fixture
def folder(tmp_path):
    return TableFolder(str(tmp_path / "checkpoint"))


@pytest.fixture
def now():
    return [0]


def lease(folder, now, process=ELSEWHERE):
    return HostLease(folder, process, lambda: now[0], TERM)


def refusal(found):
    with pytest.raises(CheckpointError) as caught, found.taken():
        pytest.fail("it has the lease")
    return str(caught.value)


def test_the_second_job_is_refused_in_words_that_name_the_first(folder, now):
    first = lease(folder, now)
    with first.taken():
        pass
    now[0] = 20 * S
    first.check()
    now[0] = 30 * S
    words = refusal(lease(folder, now))
    assert "process 7 on elsewhere, since 1970-01-01T00:00:00+00:00; it renewed its lease last at 1970" in words
    assert "00:00:20" in words
    assert "this job can start in 1 min 05 s" in words
    now[0] = 95 * S
    with lease(folder, now).taken():
        pass


def test_a_job_whose_lease_was_taken_over_fails_with_its_next_batch(folder, now):
    first, second = lease(folder, now), lease(folder, now)
    with first.taken():
        pass
    now[0] = 75 * S
    with second.taken():
        pass
    with pytest.raises(CheckpointError, match=r"another job has taken over .* 7 on elsewhere, at 1970-01-01T00:01:15"):
        first.check()
    first.release()
    second.check()
    second.release()
    with pytest.raises(CheckpointError, match="another job has taken over"):  # also when that one has gone
        first.check()


def test_a_job_goes_on_though_the_folder_of_leases_was_removed(folder, now):
    first = lease(folder, now)
    with first.taken():
        pass
    CheckpointLease(folder)._place.remove(["00000000000000000001.json"])
    first.check()
    assert "another job hosts" in refusal(lease(folder, now))


def test_a_start_that_fails_gives_the_lease_back(folder, now):
    with pytest.raises(ZeroDivisionError), lease(folder, now).taken():
        raise ZeroDivisionError
    with lease(folder, now).taken():
        pass


def test_in_one_process_a_job_is_refused_until_the_other_has_ended(folder, now):
    first, runs, ended = lease(folder, now, HERE), [True], threading.Event()
    with first.taken():
        assert "another job hosts" in refusal(lease(folder, now, HERE)), "the first one is starting"
    first.keep(ended.wait, lambda: runs[0])
    assert "another job hosts" in refusal(lease(folder, now, HERE))
    runs[0] = False  # it ended, and its thread has not seen it yet
    second = lease(folder, now, HERE)
    with second.taken():
        pass
    ended.set()
    second.check()

    # What Spark cannot answer for any more, it does not run.
    def gone():
        raise ConnectionError

    waits = threading.Event()
    second.keep(waits.wait, gone)
    with lease(folder, now, HERE).taken():
        pass
    waits.set()


@pytest.mark.parametrize("how", ["ends", "fails"])
def test_its_thread_renews_it_until_the_job_ends_and_releases_it(folder, now, how):
    found, ended = HostLease(folder, HERE, lambda: now[0], S // 10), threading.Event()

    def waits(seconds):
        assert seconds == pytest.approx(1 / 60)
        if ended.wait(0.005) and how == "fails":
            raise ArithmeticError
        return ended.is_set()

    with found.taken():
        pass
    found.keep(waits, lambda: True)
    now[0] = 40 * S
    place = CheckpointLease(folder)
    wait_for(lambda: (lease := place.read()) and lease.renewed_us == 40 * S)
    ended.set()
    wait_for(lambda: place.read() is None)


def test_a_thread_without_its_lease_lets_the_other_one_be(folder, now, caplog):
    found, ended = lease(folder, now, HERE), threading.Event()
    with found.taken():
        pass
    now[0] = 75 * S
    other = lease(folder, now)
    with other.taken():
        pass
    held = CheckpointLease(folder).read()
    assert held is not None
    found.keep(lambda _: ended.wait(0.005), lambda: True)
    wait_for(lambda: "another job has taken over" in caplog.text)
    ended.set()
    other.check()
    assert dataclasses.replace(held) == CheckpointLease(folder).read()


def test_a_lease_that_cannot_be_renewed_ends_no_batch_before_it_expires(folder, now, caplog):
    found = lease(folder, now)
    with found.taken():
        pass
    disk = Path(folder.location, "queries", "lease", ".staged")  # where a file is written that takes another's place
    disk.write_bytes(b"")
    now[0] = 59 * S
    found.check()
    assert "the lease of the job cannot be written to" in caplog.text
    assert "The lease is valid until it is 60 s old." in caplog.text
    now[0] = 60 * S
    with pytest.raises(CheckpointError, match="the lease of the job cannot be written to"):
        found.check()
    disk.unlink()
    found.check()
    now[0] = 119 * S
    assert "another job hosts" in refusal(lease(folder, now)), "it is renewed"


def test_a_lease_that_cannot_be_written_is_an_error_at_the_start(folder, now):
    place = folder.location
    os.makedirs(os.path.join(place, "queries"))
    with open(os.path.join(place, "queries", "lease"), "w", encoding="utf-8"):
        pass
    assert "the lease of the job cannot be written to" in refusal(lease(folder, now))


def test_a_table_is_written_by_its_own_query_or_by_the_job_of_its_query(folder, tmp_path):
    table, this = TableFolder(str(tmp_path / "lake")), Process.of(os.getpid())
    assert writer_lease(table, folder.location) is None
    CheckpointLease(folder).hold("job", this, 60_000_000, 1)
    assert writer_lease(table, None) is None
    assert writer_lease(table, folder.location).holder == "job"
    TableLease(table).hold("query", this, 60_000_000, 2)
    assert writer_lease(table, folder.location).holder == "query"
