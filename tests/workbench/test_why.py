"""Why a key has its row, or none: every place where it can be, and what cannot be known."""

import math
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kit.sink import Sink
from starlette.testclient import TestClient

from upstream.conf.errors import OptionError, TableError
from upstream.core.feedback.checkpoint_layout import operator_folder, queue_folder
from upstream.core.feedback.reports import QueueReport, WindowReport, write_report
from upstream.delta_format.append_table import dead_letter_table
from upstream.storage.folder import TableFolder
from upstream.workbench.server import create_app
from upstream.workbench.watch import Watch
from upstream.workbench.why import explain_key

from .pipeline import Pipeline, T, row, two_batches, why

GONE = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string()), ("gone", pa.bool_())])
BEARER = {"Authorization": "Bearer t"}


@pytest.fixture
def two(tmp_path):
    return two_batches(tmp_path)


def test_a_row_its_line_its_way_and_its_earlier_versions(two):
    found = why(two, 1)
    assert (found.verdict, found.row["v"], found.rows) == ("present", "newest", 1)
    content = (two.feed / "b.jsonl").read_text()
    decided = dict(found.decided)
    assert decided.pop("path") == str(two.feed / "b.jsonl")
    assert {name: decided[name] for name in ("line", "byte", "row", "batch")} == {
        "line": 1, "byte": content.index('{"k": 1'), "row": 0, "batch": 1,
    }  # fmt: skip
    assert found.superseded == 2
    assert found.commit["version"] == two.sink.version()
    assert [(each["kind"], each["batch_id"], each["row"]["v"]) for each in found.events] == [
        ("written", 1, "newest"), ("written", 0, "first"),
    ]  # fmt: skip
    names = [each.name for each in found.way]
    assert names == ["event to arrival", "arrival to batch", "service"]
    planned = two.offsets[1]["now_us"]
    assert [found.way[0].from_us, found.way[1].to_us] == [T + 40, planned]
    assert found.way[-1].to_us == found.commit["at_us"]
    assert sum(each.to_us - each.from_us for each in found.way) == found.commit["at_us"] - T - 40
    assert found.first_arrival_us == min(part["arrival_us"] for part in two.offsets[1]["ranges"])
    assert found.unknown == []


def test_a_deletion_its_line_and_its_commit(tmp_path):
    pipeline = Pipeline(tmp_path, GONE, sink={"deleteWhen": "gone"})
    pipeline.lines("a.jsonl", row(1, 10, gone=False), row(2, 10, gone=False))
    pipeline.batch()
    pipeline.lines("a.jsonl", row(1, 20, gone=True))
    pipeline.batch()
    pipeline.lines("a.jsonl", row(2, 20, gone=False))
    pipeline.batch()
    found = why(pipeline, 1)
    assert found.verdict == "deleted"
    assert (found.decided["line"], found.decided["batch"], found.commit["batch_id"]) == (3, 1, 1)
    assert [each["kind"] for each in found.events] == ["deleted", "written"]
    pipeline.lines("a.jsonl", row(1, 30, gone=False))
    pipeline.batch()
    assert [each["kind"] for each in why(pipeline, 1).events] == ["written", "deleted", "written"]


def test_late_rows_are_said_to_be_late(tmp_path):
    letters = {"deadLetters": str(tmp_path / "letters"), "deadLetterRows": "late"}
    pipeline = Pipeline(tmp_path, sink=letters, watermark="bounded", watermarkDelay="0 s", confirmations="1")
    pipeline.lines("a.jsonl", row(1, 1_000), row(2, 900))
    pipeline.batch()
    pipeline.lines("a.jsonl", row(3, 10), row(4, 2_000))
    pipeline.batch()
    assert (why(pipeline, 3).late, why(pipeline, 4).late) == (True, False)
    assert [each["reason"] for each in why(pipeline, 3).letters] == ["late"]


def test_the_input_alone_proves_that_a_key_is_unseen(two):
    assert why(two, 77).verdict == "unseen"
    shutil.rmtree(two.feed)
    found = why(two, 77)
    assert found.verdict == "unknown"
    assert any("disappeared" in each for each in found.unknown)


def test_without_a_checkpoint_it_says_so(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 10, "a")])])
    shutil.rmtree(sink.checkpoint)
    found = explain_key(str(sink.path), ["1"], seconds=math.inf)
    assert (found.verdict, found.commit["batch_id"], found.decided) == ("present", 0, None)
    assert any("checkpoint is not beside" in each for each in found.unknown)
    assert explain_key(str(sink.path), ["2"], seconds=math.inf).verdict == "unknown"
    with pytest.raises(TableError, match="no checkpoint at"):
        explain_key(str(sink.path), ["2"], checkpoint=str(tmp_path / "nowhere"))


def test_a_named_checkpoint_is_that_of_its_query_alone(two):
    other = Sink(two.sink.folder, query_id="query-2")
    other.batch(0, [other.rows([(1, T + 100, "other")])])
    found = why(two, 1, checkpoint=str(two.sink.checkpoint))
    assert (found.row["v"], found.decided) == ("other", None)
    assert any("another query wrote it, query-2" in each for each in found.unknown)
    assert why(two, 3, checkpoint=str(two.sink.checkpoint)).decided["line"] == 5


def test_a_reason_is_given_once(two):
    write_report(queue_folder(str(two.sink.checkpoint)), QueueReport(0, batch_id=1, waiting=3))
    shutil.rmtree(two.feed)
    found = why(two, 1)
    (counted,) = (each for each in found.unknown if "superseded" in each)
    assert counted.endswith(": the query has a queue, and the table does not have the queue's counts.")


def test_keys_of_text_and_of_two_columns(tmp_path):
    columns = pa.schema([("region", pa.string()), ("k", pa.int64()), ("t", pa.int64()), ("v", pa.string())])
    pipeline = Pipeline(tmp_path, columns, sink={"key": "region, k"}, key="region, k")
    pipeline.lines("a.jsonl", row(1, 10, region="eu"), row(1, 10, region="us"), row(1, 20, region="eu"))
    pipeline.batch()
    found = explain_key(str(pipeline.sink.path), ["region=eu", "k=1"], seconds=math.inf)
    assert (found.decided["line"], found.superseded) == (3, 1)
    assert explain_key(str(pipeline.sink.path), ["region=us", "k=2"], seconds=math.inf).verdict == "unseen"
    with pytest.raises(OptionError, match="`k` is missing"):
        explain_key(str(pipeline.sink.path), ["region=eu"])


def test_the_page_asks_and_is_answered(two, monkeypatch):
    monkeypatch.setattr("upstream.workbench.why._SECONDS", math.inf)  # however busy the machine is
    watch = Watch([str(two.sink.folder)], {})
    watch.refresh()
    with TestClient(create_app(watch, token="t"), "http://localhost", headers=BEARER) as client:
        assert client.get("/api/v1/why").json() == {"key": [{"name": "k", "type": "int64"}], "event_time": "t"}
        found = client.get("/api/v1/why", params={"key": "k=1"}).json()
        assert (found["verdict"], found["superseded"], found["decided"]["line"]) == ("present", 2, 1)
        assert sum(each["seconds"] for each in found["way"]) == pytest.approx(found["commit"]["at_us"] / 1e6 - T / 1e6)
        wrong = client.get("/api/v1/why", params={"key": "k=one"})
        assert wrong.status_code == 400
        assert "is not a value of the key column" in wrong.json()["error"]


def test_dead_letters_of_others_are_left_alone(two):
    other = two.sink.path.with_name("table_dead_letters")
    DeltaTable.create(str(other), pa.schema([("x", pa.int64())]))
    found = why(two, 77)
    assert any(each.startswith(f"The dead letters at {other} are unknown: ") for each in found.unknown)
    assert dead_letter_table(TableFolder(str(two.sink.checkpoint / "dead_letters"))).load() is None


def test_what_a_window_made_is_no_row_of_the_input(two):
    report = WindowReport(0, batch_id=1, bound=T, entries=3, held_since_us=T)
    write_report(operator_folder(str(two.sink.checkpoint), "windows"), report)
    found = why(two, 1)
    assert found.decided is None
    assert any("a result of windows" in each for each in found.unknown)
    assert [(each["operator"], each["rows"], each["complete_to"]) for each in found.operators] == [("windows", 3, T)]
    two.lines("a.jsonl", row(8, 60, "open"))
    number = two.plan()
    (two.sink.checkpoint / "commits" / str(number)).write_text("v1\n{}")  # read, and nothing left the window
    waiting = why(two, 8)
    assert (waiting.verdict, waiting.coming[0]["place"]["line"]) == ("waiting", 6)
    assert waiting.sentence == "The query has read a row of the key. It waits in a step: windows."
