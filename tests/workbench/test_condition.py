"""The state of a table: from its commits, its leases, and the journal of its query."""

import dataclasses
import json
import os

from kit.scenes import SECOND, Scene

from upstream.conf.process_identity import Process
from upstream.sink.commit.lease import TableLease
from upstream.storage.folder import TableFolder
from upstream.workbench import condition
from upstream.workbench.condition import table_condition
from upstream.workbench.views import overview
from upstream.workbench.watch import Watch


def watched(scene):
    watch = Watch([str(scene.folder)], {}, clock_us=lambda: scene.now_us)
    watch.refresh()
    return watch.table()


def hang(scene, age_s=1.0):
    """Journal a batch whose rows arrived before it, and that does not end."""
    journal = scene.checkpoint / "offsets"
    head, mode, line = (journal / str(scene.batches - 1)).read_text().splitlines()
    part = {"feed": "feed", "place": {}, "span": 5_000, "arrival_us": scene.now_us - int(age_s * SECOND)}
    line = json.dumps({**json.loads(line), "batch": scene.batches, "now_us": scene.now_us, "ranges": [part]})
    (journal / str(scene.batches)).write_text(f"{head}\n{mode}\n{line}")


def test_a_query_whose_batch_hangs_is_late(tmp_path):
    scene = Scene(tmp_path).history(3).hold()
    hang(scene)
    table = watched(scene)
    assert table_condition(table, scene.now_us + SECOND).state == "running"
    found = table_condition(table, scene.now_us + 20 * SECOND)
    assert (found.state, found.writer) == ("late", scene.query_id)
    page = overview(table, scene.now_us + 20 * SECOND)
    assert page["state"] == "late"
    assert page["verdict"] == (
        "21.0 s stale on average; batch 3 has no commit after 20.0 s, and its first row has waited for 21.0 s; "
        "the target p99 < 10.0 s is missed."
    )
    assert (page["staleness_now"]["p99"], page["waiting_s"], page["target_met"]) == (21.0, 21.0, False)
    json.dumps(page)


def test_without_a_target_the_batch_is_named(tmp_path):
    options = {name: value for name, value in Scene(tmp_path / "other").options.items() if name != "target"}
    scene = Scene(tmp_path / "lake", options=options).history(2).hold()
    hang(scene)
    page = overview(watched(scene), scene.now_us + 30 * SECOND)
    assert (page["state"], page["target_met"]) == ("running", None)
    assert page["verdict"] == (
        "31.0 s stale on average; batch 2 has no commit after 30.0 s, and its first row has waited for 31.0 s."
    )
    later = scene.now_us + 601 * SECOND
    scene.hold(now=later)
    assert table_condition(watched(scene), later).state == "late"


def test_an_idle_query_does_not_grow_stale(tmp_path):
    scene = Scene(tmp_path).history(2)
    later = scene.now_us + 60 * SECOND
    scene.hold(now=later)
    page = overview(watched(scene), later)
    assert (page["state"], page["idle"], page["staleness_now"]["max"]) == ("running", True, 0.0)
    assert page["verdict"] == (
        "All rows that were read are answered; the last commit was 1 min 00 s ago; the target p99 < 10.0 s is met."
    )


def test_only_a_process_that_is_gone_has_ended(tmp_path):
    scene = Scene(tmp_path).history(2)
    scene.hold(now=scene.now_us)
    table, mine = watched(scene), Process.of(os.getpid())
    later = scene.now_us + 200 * SECOND
    found = table_condition(table, later)
    assert (found.state, found.writer) == ("failed", None)
    assert found.loss == f"process {mine.pid} on {mine.host} has not renewed its lease for 3 min 20 s"
    lease = TableLease(TableFolder(str(scene.path)))
    lease.release()
    elsewhere = dataclasses.replace(mine, machine="another boot", host="node7", pid=4711)
    lease.hold(scene.query_id, elsewhere, 60 * SECOND, scene.now_us)
    assert table_condition(table, later).loss == "process 4711 on node7 has not renewed its lease for 3 min 20 s"
    lease.release()
    lease.hold(scene.query_id, dataclasses.replace(mine, pid=4711, started=1), 60 * SECOND, scene.now_us)
    assert table_condition(table, scene.now_us).loss == "process 4711 has ended"


def test_rows_that_a_dead_process_has_read_wait_on(tmp_path):
    scene = Scene(tmp_path).history(2).hold(gone=True)
    hang(scene)
    page = overview(watched(scene), scene.now_us + 90 * SECOND)
    assert (page["state"], page["target_met"], page["staleness_now"]["p99"]) == ("failed", False, 91.0)
    assert page["verdict"] == (
        "No commit for 1 min 30 s: process 4711 has ended, and no other has taken its query over. "
        "Batch 2 has no commit after 1 min 30 s, and its first row has waited for 1 min 31 s."
    )


def test_the_journal_of_a_job_is_read_once_for_all_of_its_tables(tmp_path, monkeypatch):
    scene = Scene(tmp_path).history(1).hold()
    table, journals, reads = watched(scene), {}, []
    read = condition.JournaledBatch.read
    monkeypatch.setattr(condition.JournaledBatch, "read", lambda folder: reads.append(folder) or read(folder))
    for _ in range(3):
        table_condition(table, scene.now_us, journals=journals)
    assert len(reads) == 1
