"""The plan of a query as the workbench shows it: steps with figures, shared parts, and the way of the oldest answer."""

import json
from xml.etree import ElementTree

import pytest
from kit.continuous import CATALOG
from kit.registries import begun
from kit.sink import Sink
from typer.testing import CliRunner

from upstream.cli.main import app
from upstream.core.feedback.checkpoint_layout import (
    SparkTimes,
    operator_folder,
    query_queue_folder,
    queue_folder,
    stage_folder,
    write_plan_record,
    write_steps,
)
from upstream.core.feedback.reports import JoinReport, QueueReport, StageReport, WindowReport, write_report
from upstream.hosting.edits import record
from upstream.hosting.journal import Change, Journal
from upstream.hosting.messages import QUEUES, offset_of
from upstream.hosting.reports import HostTimes, PartsReport, QueryReport
from upstream.language import bind
from upstream.operators.relations.plan.common_parts import part_key
from upstream.storage.folder import TableFolder

from .hosted import NOW_US, Job, S, page, planned, register, source, state


def step(number, kind, text, *inputs, folder=""):
    return {"name": f"step-{number}", "kind": kind, "text": text, "facts": [], "inputs": inputs, "folder": folder}


STEPS = [
    step(0, "source", "read files feed/"),
    step(1, "step", "where v > 0", "step-0"),
    step(2, "operator", "queue, in-place", "step-1", folder="upstream-queue"),
]


@pytest.fixture
def sink(tmp_path):
    """Two commits, 2 s apart, of a query with two input partitions, of which one is silent."""
    sink = Sink(tmp_path)
    for batch in (0, 1):
        sink.now_us = NOW_US + (batch - 1) * 2 * S
        feeds = {"in/a": state(70, 100), "in/b": state(100 + batch, 100 + 50 * batch)}
        planned(sink.checkpoint, batch, source(34.0, **feeds), {"tick": 1})
        sink.batch(batch, [sink.rows([(batch, 10 + batch, "x")], seq=batch)])
    return sink


def asked(written, **params):
    with page(written.folder) as client:
        answer = client.get("/api/v1/plan", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def nodes(plan):
    return {each["name"]: each for each in plan["nodes"]}


def figures(node):
    return {each["name"]: each["value"] for each in node["figures"]}


def test_the_steps_of_a_query_have_the_figures_of_its_last_batch(sink):
    write_steps(TableFolder(str(sink.checkpoint)), STEPS)
    folder = queue_folder(str(sink.checkpoint))
    for shard in (0, 1):
        write_report(folder, QueueReport(shard, batch_id=1, arrived=30, applied=20, waiting=7, state_bytes=100))
    plan = asked(sink)
    found = nodes(plan)
    assert [each["kind"] for each in plan["nodes"]] == ["source", "step", "operator", "table"]
    assert figures(found["step-0"]) == {
        "partitions": 2, "low-watermark": "1970-01-01 00:01:10 UTC", "rows received": 250
    }  # fmt: skip
    queue = figures(found["step-2"])
    assert (queue["rows in"], queue["rows out"], queue["waiting"]) == (60, 40, 14)
    assert queue["state written in the batch"] == 200
    assert figures(found["table:table"])["keys"] == 2
    rates = {(each["from"], each["to"]): each["rows_per_s"] for each in plan["edges"]}
    assert rates["step-0", "step-1"] == 25.0, "50 rows came in the 2 s between two commits"
    assert rates["step-1", "step-2"] == 30.0
    assert rates["step-2", "table:table"] == 20.0


def test_an_edge_names_what_samples_its_rows_and_a_commit_has_the_time_of_its_parts(sink):
    write_steps(TableFolder(str(sink.checkpoint)), STEPS)
    offset = {**source(34.0, **{"in/a": state(70)}), "id": "s1", "now_us": NOW_US + 2 * S}
    for batch in (2, 3):
        sink.now_us = NOW_US + batch * 2 * S
        planned(sink.checkpoint, batch, {**offset, "now_us": sink.now_us - S})
        head = {"batchTimestampMs": (sink.now_us - S // 4) // 1000}
        place = sink.checkpoint / "offsets" / str(batch)
        place.write_text(place.read_text().replace("{}", json.dumps(head), 1))
        sink.batch(batch, [sink.rows([(batch, 10, "x")], seq=batch)])
    plan = asked(sink, version=3)
    samples = {(each["from"], each["to"]): each["samples"] for each in plan["edges"]}
    assert samples["step-0", "step-1"] == ["source/s1"]
    assert samples["step-1", "step-2"] == []
    assert samples["step-2", "table:table"] == ["queue/0", "sink"]
    spans = {each["name"]: each for each in plan["spans"]}
    assert (spans["batch"]["start_s"], spans["batch"]["seconds"]) == (0, 1)
    assert spans["choose input"]["seconds"] == 0.75
    within = ("choose input", "Spark, and stages before the sink", "slowest task of the sink")
    assert sum(spans[each]["seconds"] for each in within if each in spans) == pytest.approx(1)
    assert spans["slowest task of the sink"]["seconds"] >= spans["merge and write"]["seconds"] > 0
    assert [each["name"] for each in plan["spans"] if not each["measured"]][-1] == "until the next batch"
    assert spans["until the next batch"]["seconds"] == 1


WINDOW = [STEPS[0], step(2, "operator", "window, 10 min", "step-0", folder="upstream-windows/0")]


def windowed(sink, needs_s):
    """Let a window hold 20 rows, which leave when the low-watermark passes that second."""
    write_steps(TableFolder(str(sink.checkpoint)), WINDOW)
    held = WindowReport(0, batch_id=1, entries=30, rows=8, held=20, needs=needs_s * S, held_since_us=NOW_US - 9 * S)
    write_report(operator_folder(str(sink.checkpoint), "windows"), held)


def test_the_way_begins_at_a_silent_partition_only_if_a_step_holds_rows_for_it(sink):
    write_steps(TableFolder(str(sink.checkpoint)), STEPS)
    wait = asked(sink)["wait"]
    assert wait["sentence"] == "complete to no known time: waits for a, silent for 34.0 s. No update waits"
    assert (wait["kind"], wait["path"]) == ("nothing", [])
    windowed(sink, needs_s=90)
    plan = asked(sink)
    assert plan["wait"]["sentence"] == (
        "complete to no known time; the window holds 20 rows, the oldest for 9.0 s, and waits for a, silent for 34.0 s"
    )
    assert plan["wait"]["path"] == ["partition:in/a", "step-0", "step-2", "table:table"]
    assert all(each["critical"] for each in plan["nodes"])


def test_rows_of_a_state_that_no_answer_waits_for_are_no_wait(sink):
    steps = [STEPS[0], step(2, "operator", "join", "step-0", folder="upstream-joins/0")]
    write_steps(TableFolder(str(sink.checkpoint)), steps)
    place = operator_folder(str(sink.checkpoint), "joins")
    write_report(place, JoinReport(0, batch_id=1, left_kept=7, right_kept=3))
    assert asked(sink)["wait"]["kind"] == "nothing"
    write_report(place, JoinReport(0, batch_id=1, left_kept=7, right_kept=3, needs=90 * S))
    assert asked(sink)["wait"]["reason"] == "the join holds 10 rows, and waits for a, silent for 34.0 s"
    write_report(place, JoinReport(0, batch_id=1, left_kept=7, right_kept=3, queued=2, held=1))
    assert asked(sink)["wait"]["reason"] == "the join holds 3 rows"


def test_an_earlier_commit_is_judged_at_its_own_time_and_without_later_reports(sink):
    write_steps(TableFolder(str(sink.checkpoint)), STEPS)
    write_report(queue_folder(str(sink.checkpoint)), QueueReport(0, batch_id=1, arrived=30))
    earlier = sink.version() - 1
    first = asked(sink, version=earlier)
    assert first["version"] == earlier
    assert first["wait"]["holds_back"] == "waits for a, silent for 32.0 s"
    assert first["wait"]["kind"] == "nothing"
    assert nodes(first)["step-2"]["figures"] == []
    windowed(sink, needs_s=90)
    assert asked(sink, version=earlier)["wait"]["reason"] == "waits for a, silent for 32.0 s"
    with page(sink.folder) as client:
        assert client.get("/api/v1/plan", params={"version": "x"}).status_code == 400


def test_a_part_of_the_plan_is_loaded_and_counts_what_is_left_out(sink):
    write_steps(TableFolder(str(sink.checkpoint)), STEPS)
    plan = asked(sink, root="table:table", depth=1)
    assert nodes(plan).keys() == {"step-2", "table:table"}
    assert nodes(plan)["step-2"]["hidden"] == 1
    with page(sink.folder) as client:
        assert client.get("/api/v1/plan", params={"root": "step-9"}).status_code == 400


def test_a_window_that_holds_rows_is_the_stage_that_waits(sink):
    windowed(sink, needs_s=120)
    planned(sink.checkpoint, 1, source(0.5, **{"in/a": state(100, 100), "in/b": state(100, 150)}))
    wait = asked(sink)["wait"]
    assert (wait["kind"], wait["path"]) == ("stage", ["step-2", "table:table"])
    assert wait["reason"] == (
        "the window holds 20 rows, the oldest for 9.0 s, until the low-watermark passes 1970-01-01 00:02:00 UTC"
    )


def test_without_a_record_of_its_steps_a_query_has_its_sources_and_operators(sink):
    part = {"place": "upstream-windows/0", "name": "window", "identity": {}, "paced": ""}
    write_plan_record(str(sink.checkpoint), [[part]])
    found = nodes(asked(sink))
    assert found["upstream-windows/0"]["inputs"] == ["source-0"]
    assert found["table:table"]["inputs"] == ["upstream-windows/0"]
    bare = Sink(sink.folder / "other")
    bare.batch(0, [bare.rows([(1, 1, "x")])])
    assert [each["kind"] for each in asked(bare)["nodes"]] == ["table"]


def test_the_picture_has_each_step_and_the_marked_way(sink):
    windowed(sink, needs_s=90)
    with page(sink.folder) as client:
        answer = client.get("/api/v1/plan.svg")
    assert answer.headers["content-type"].startswith("image/svg+xml")
    picture = ElementTree.fromstring(answer.text)
    groups = [each for each in picture.iter("{http://www.w3.org/2000/svg}g") if each.get("data-node")]
    assert [each.get("data-node") for each in groups][-1] == "table:table"
    assert all("critical" in each.get("class") for each in groups)


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_parts_that_queries_of_a_job_share_are_there_once_and_name_who_shares_them(job):
    plan = asked(job)
    shared = [each for each in plan["nodes"] if each["shared"]]
    (latest,) = [each for each in shared if each["title"] == "Latest"]
    readers = {each["to"] for each in plan["edges"] if each["from"] == latest["name"]}
    assert len(readers) == 2
    assert nodes(plan)["query:per_route"]["facts"] == ["route_id, n"]
    assert figures(nodes(plan)["stream:buses"])["rows received"] == 25
    assert plan["queries"] == 2


def test_the_plan_of_one_query_and_of_a_text_that_is_not_registered(job):
    one = asked(job, root="query:fast")
    assert "query:per_route" not in nodes(one)
    assert any(each["shared"] == ["per_route"] for each in one["nodes"])
    typed = asked(job, text="SELECT MAX(speed) AS top FROM LATEST(buses)")
    assert nodes(typed)["query:"]["facts"] == ["top"]
    with page(job.folder) as client:
        assert client.get("/api/v1/plan", params={"root": "query:none"}).status_code == 404
        assert client.get("/api/v1/plan", params={"text": "SELECT FROM"}).status_code == 400


def test_the_queue_of_a_view_shows_the_rows_that_wait_and_its_budget(job):
    query = register(str(job.checkpoint), "v", "SELECT vehicle_id, speed FROM LATEST(buses)", queue={"queue": "fifo"})
    number = query.queries["v"].id
    states = [source(**{each: state(100)}) for each in ("feed/1", "a", "b")]
    ticks = {QUEUES: {str(number): {"asked": "auto", "budget": 2000}}}
    planned(job.checkpoint, 5, *states, {**offset_of(str(job.checkpoint), 3), **ticks})
    for shard, batch in ((0, 5), (1, 4)):
        figures_ = {"arrived": 30, "applied": 20, "superseded": 3, "waiting": 7, "oldest_us": NOW_US - (shard + 1) * S}
        write_report(query_queue_folder(str(job.checkpoint), number), QueueReport(shard, batch_id=batch, **figures_))
    job.report(v=QueryReport(begun=True, waiting_since_us=NOW_US - 2 * S))
    plan = asked(job, root="query:v")
    (queue,) = [each for each in plan["nodes"] if each["title"].startswith("Queue fifo")]
    assert figures(queue) == {
        "budget": "auto, 2,000 rows", "rows in": 30, "rows out": 20, "waiting": 14, "superseded in the queue": 3,
        "oldest": 2.0,
    }  # fmt: skip
    done = CliRunner().invoke(app, ["status", str(job.checkpoint)]).output
    assert "v: queue fifo, budget auto, 2,000 rows: 14 rows wait, the oldest for " in done
    assert "; 3 superseded in the last batch" in done
    rows = CliRunner().invoke(app, ["status", "--json", str(job.checkpoint)]).output.splitlines()
    assert [each and (each["policy"], each["waiting"]) for each in (json.loads(row)["queue"] for row in rows)] == [
        None, None, ("fifo", 14),
    ]  # fmt: skip
    shown = CliRunner().invoke(app, ["sql", "SHOW MATERIALIZED VIEWS", "--checkpoint", str(job.checkpoint)]).output
    assert "queue fifo, budget auto" in " ".join(shown.split())
    record(str(job.checkpoint), Change("deactivate", "v"))
    assert any(each["title"].startswith("Queue fifo") for each in asked(job, root="query:v")["nodes"])


@pytest.mark.parametrize("clock", ["arrival", "event"])
def test_a_hosted_query_waits_for_a_partition_of_its_streams_if_it_counts_by_event_time(job, clock):
    by_time = "SELECT COUNT(*) AS n FROM buses [RANGE 1 MINUTE]"
    if clock == "event":
        register(str(job.checkpoint), "timed", by_time)
        job.plan(version=3)
    name = "timed" if clock == "event" else "fast"
    table = Sink(job.folder / "x", query_id="host")
    table.now_us = NOW_US
    table.batch(4, [table.rows([(1, 10, "x")])])
    (job.folder / "lake").mkdir()
    table.path.rename(job.folder / "lake" / name)
    write_report(stage_folder(str(job.checkpoint), 0), StageReport(0, needs=90 * S, held_since_us=NOW_US - 9 * S))
    plan = asked(job, table=name)
    assert plan["root"] == f"query:{name}"
    assert plan["wait"]["holds_back"] == "waits for 2, silent for 34.0 s"
    assert plan["wait"]["complete"] == "1970-01-01 00:01:10 UTC"
    way = plan["wait"]["path"]
    if clock == "arrival":
        assert (plan["wait"]["kind"], way) == ("nothing", [])
    else:
        assert "the oldest for 9.0 s, and waits for 2" in plan["wait"]["reason"]
        assert way[:2] == ["partition:feed/2", "stream:buses"]
        assert way[-1] == "query:timed"


def test_the_steps_before_a_stream_are_shown_before_it(job):
    alone = [{**STEPS[0], "name": f"other-{number}"} for number in range(2)]
    meeting = {"name": "q", "kind": "query", "text": "", "facts": [], "folder": ""}
    inputs = ["step-2", *(each["name"] for each in alone)]
    write_steps(TableFolder(str(job.checkpoint)), [*STEPS, *alone, {**meeting, "inputs": inputs}])
    found = nodes(asked(job))
    assert found["stream:buses"]["inputs"] == ["step-2"]
    assert found["step-2"]["title"] == "queue, in-place"
    assert "q" not in found


def test_the_parts_of_a_query_have_their_costs_and_divide_the_time_of_the_stages(job):
    (latest,) = [each for each in asked(job)["nodes"] if each["title"] == "Latest"]
    assert asked(job)["spans"] == latest["figures"] == []
    key = part_key(bind("SELECT * FROM LATEST(buses)", CATALOG).plan)
    began_us, folder = NOW_US - 9 * S, stage_folder(str(job.checkpoint), 0)
    job.report(HostTimes(began_us, 0.5, 4.0, 5.0, 2))
    for shard in range(2):
        parts = [[key, [1, 2], 0.4, 0.3, 5, 100, ["slices"]], ["slices", [1], 0.2, 0.1, 1, 7, []]]
        parts.append(["own", [1], 0.3, 0.3, 1, 7, []])
        write_report(folder, PartsReport(shard, 4, began_us + S, 2.0, {"e": (4, parts)}))
    plan = asked(job, root="query:fast")
    (latest,) = [each for each in plan["nodes"] if each["title"] == "Latest"]
    assert figures(latest) == {"time of tasks per batch": 0.8, "rows changed": 10, "state": 214}
    samples = {edge["from"]: edge["samples"] for edge in plan["edges"]}
    assert samples[latest["name"]] == [f"part/{key}"]
    spans = [(each["name"], each["depth"], each["start_s"], each["seconds"]) for each in plan["spans"]]
    assert spans == [
        ("batch", 0, 0, 5),
        ("look at the tables", 1, 0, 0.5),
        ("Spark's job", 1, 0.5, 3.5),
        ("read the streams", 2, 0.5, 0.5),
        ("first stage", 2, 1, 2),
        ("Latest", 3, 1, pytest.approx(0.6)),
        ("other parts", 3, pytest.approx(1.6), pytest.approx(0.3)),
        ("merge into the tables", 2, 3, 1),
        ("commit", 1, 4, 1),
    ]
    assert [each["name"] for each in plan["spans"] if not each["measured"]] == [
        "read the streams", "merge into the tables"
    ]  # fmt: skip
    steps = {"addBatch": 5.1, "commitOffsets": 0.2, "triggerExecution": 6.0}
    SparkTimes(4, began_us - S // 2, steps).write(TableFolder(str(job.checkpoint)))
    within = [(each["name"], each["depth"], each["start_s"]) for each in asked(job, root="query:fast")["spans"]]
    assert within[0] == ("batch", 0, 0)
    assert (
        within.index(("look at the tables", 2, pytest.approx(0.7)))
        == [each[0] for each in within].index("run (addBatch)") + 1
    )
    assert within[-1][:2] == ("note the commit (commitOffsets)", 1)


def test_a_job_without_queries_has_an_empty_plan(tmp_path):
    begun(tmp_path)
    with page(tmp_path) as client:
        found = client.get("/api/v1/plan")
        assert (found.status_code, client.get("/api/v1/plan.svg").status_code) == (200, 200), found.text
        assert found.json()["nodes"] == []


def test_a_job_of_many_queries_is_shown_in_parts(job):
    text = "SELECT route_id, COUNT(*) AS n{} FROM LATEST(buses) GROUP BY route_id"
    parts = tuple(Change("create", f"more_{number}", text.format(number)) for number in range(998))
    Journal(str(job.checkpoint)).put(3, Change("apply", "", parts=parts))
    job.plan(version=3)
    plan = asked(job, limit=5)
    assert [each["kind"] for each in plan["nodes"]] == ["source", *["query"] * 5, "more"]
    assert nodes(plan)["more"]["title"] == "and 995 more queries"
    assert len(json.dumps(asked(job, limit=200))) < 300_000
    one = json.dumps(asked(job, root="query:more_7"))
    assert "more_8" in one, "a part that all share names others"
    assert len(one) < 300_000
