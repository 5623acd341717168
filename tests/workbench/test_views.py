"""The figures of the pages, from tables in each state."""

import json
import os

import pytest
from kit.scenes import SECOND, Scene, every_state
from kit.sink import NOW_US

from upstream.conf.process_identity import Process
from upstream.core.feedback.checkpoint_layout import SPARK, SparkApplication
from upstream.storage.folder import TableFolder
from upstream.workbench import views
from upstream.workbench.watch import Watch


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return every_state(tmp_path_factory.mktemp("states"), batches=6)


def watched(scene, now_us=None):
    watch = Watch([str(scene.folder)], {}, clock_us=lambda: now_us or scene.now_us)
    watch.refresh()
    return watch.table()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("running", "stale on average; the target p99 < 10.0 s is met"),
        ("late", " is met. Completeness waits for 2.csv, silent for"),
        (
            "overloaded",
            "10.0 times as many rows arrive as are processed; 4,882 updates wait in the queue, the oldest for 13.0 s",
        ),
        ("failed", "process 4711 has ended"),
        ("ended", "No query writes this table"),
        ("empty", "No query has committed"),
    ],
)
def test_each_state_has_its_verdict(scenes, state, words):
    scene = scenes[state]
    found = views.overview(watched(scene), scene.now_us + SECOND)
    assert found["state"] == state
    assert words in found["verdict"]
    assert found.get("advice", "").startswith("Batches of about") == (state == "overloaded")
    json.dumps(found)


def test_sparks_pages_are_a_link_while_their_process_runs_the_query(tmp_path):
    scene = Scene(tmp_path).history(2).hold()
    mine, other = Process.of(os.getpid()), Process("here", "boot", 7, 9)

    def link(pages, *processes):
        SparkApplication("app", pages, processes).write(TableFolder(str(scene.checkpoint)))
        return views.overview(watched(scene), scene.now_us)["spark"]

    assert views.overview(watched(scene), scene.now_us)["spark"] is None
    assert link("http://127.0.0.1:4040", other, mine) == "http://127.0.0.1:4040"
    assert link("http://127.0.0.1:4040", other) is None, "another application has the query now"
    assert link(None, mine) is None
    record = scene.checkpoint / SPARK / "application.json"
    record.write_text(record.read_text().replace("null", '"javascript:alert(1)"'))
    assert views.overview(watched(scene), scene.now_us)["spark"] is None
    link("http://127.0.0.1:4040", mine)
    scene.end()
    assert views.overview(watched(scene), scene.now_us)["spark"] is None


def test_a_table_whose_input_partitions_have_ended_is_complete(tmp_path):
    scene = Scene(tmp_path)
    scene.batch(0, [scene.rows([(1, 2, 3.0, NOW_US)]), scene.punctuation(None)])
    table = watched(scene)
    last = table.last
    assert last.low_watermarks == {"feed": None}
    assert views.overview(table, scene.now_us)["verdict"].startswith("Complete")


def test_history_keeps_maxima_and_rates_however_few_points_it_has(scenes):
    table = watched(scenes["running"])
    whole = views.summaries(table, 0, 1 << 62, 100)["columns"]
    few = views.summaries(table, 0, 1 << 62, 2, latest=3)
    assert len(whole["at_s"]) == 6
    assert 1 < len(few["columns"]["at_s"]) <= 2
    assert few["commits"] == 6
    assert max(few["columns"]["max_s"]) == max(whole["max_s"]) > 0
    assert max(few["columns"]["p99_s"]) == max(whole["p99_s"])
    assert whole["updates_per_s"][0] is None
    assert whole["updates_per_s"][1] == pytest.approx(120, rel=0.05)
    assert [each["batch_id"] for each in few["latest"]] == [3, 4, 5]
    middle = int(whole["at_s"][2] * 1e6)
    assert len(views.summaries(table, middle, middle, 100)["columns"]["at_s"]) == 1
    assert views.summaries(table, 1, 2, 100)["columns"] == {"at_s": []}


def test_heat_map_counts_every_applied_key_once(scenes):
    table = watched(scenes["running"])
    found = views.heatmap(table, 0, 1 << 62, 4)
    assert len(found["times"]) == len(found["counts"]) + 1 == 5
    assert {len(column) + 1 for column in found["counts"]} == {len(found["ages"])}
    assert sum(map(sum, found["counts"])) == sum(summary.ages.count for _, summary in table.commits)
    assert found["ages"] == sorted(found["ages"])
    shares = [share for _, share in found["above"]]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0
    oldest = max(summary.ages.max_s for _, summary in table.commits)
    assert found["above"][-1][0] == oldest <= found["ages"][-1]


def test_the_input_partition_that_holds_the_others_back_comes_first(scenes):
    scene = scenes["late"]
    (place,) = views.feeds(watched(scene), scene.now_us)["places"]
    first, *others = place["lanes"]
    assert (first["feed"], first["holds"]) == ("feed/vehicles/2.csv", True)
    assert first["silent_s"] == pytest.approx(12, abs=1), "four batches, three seconds apart"
    assert not any(each["holds"] for each in others)
    assert others[-1]["behind_s"] == 0
    assert first["rows"] < others[0]["rows"]


def test_without_a_checkpoint_lanes_are_those_of_the_last_commit(scenes, tmp_path):
    table = watched(scenes["running"])
    table._query = (scenes["running"].query_id, None)
    table._given = None
    checkpoint = scenes["running"].checkpoint
    moved = checkpoint.rename(tmp_path / "moved")
    try:
        (place,) = views.feeds(table, scenes["running"].now_us)["places"]
    finally:
        moved.rename(checkpoint)
    assert place["name"] == "the last commit"
    assert {each["feed"] for each in place["lanes"]} == set(scenes["running"].feeds)
    assert all(each["silent_s"] is None for each in place["lanes"])


def test_shards_with_the_most_rows_come_first(scenes):
    found = views.shards(watched(scenes["overloaded"]))
    assert [each["waiting"] for each in found["queues"]] == [2476, 2406]
    rows = [each["rows"] for each in found["buckets"]]
    assert rows == sorted(rows, reverse=True)
    assert sum(rows) == watched(scenes["overloaded"]).last.keys


def test_keys_of_the_queue_are_listed_as_it_reports_them_or_how_to_have_them(scenes, tmp_path):
    found = views.stalest(watched(scenes["overloaded"]), 50)
    assert [each["name"] for each in found["columns"]] == ["vehicle_id", "first_arrival", "age_s", "covered"]
    assert len(found["rows"]) == 5, "each shard reports so many, so no more are sure to be the stalest"
    silent = watched(Scene(tmp_path, waiting=90).history(1))
    assert views.stalest(silent, 5)["why"] == "To see them, restart the query with .queue(stalest_keys=20)."
    assert "no queue has reported" in views.stalest(watched(scenes["running"]), 5)["why"]


def test_a_silent_partition_explains_completeness_and_the_queue_staleness(tmp_path):
    scene = Scene(tmp_path, waiting=900, silent=("feed/vehicles/2.csv",), silent_from=2).history(8, every_s=8).hold()
    verdict = views.overview(watched(scene), scene.now_us)["verdict"]
    reason, completeness = verdict.split(". Completeness ")
    assert "updates wait in the queue, the oldest for" in reason
    assert completeness.startswith("waits for 2.csv, silent for")
