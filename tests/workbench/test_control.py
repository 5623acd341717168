"""Control tables of a query's entities: what is in force, what changed it, and changes of two browsers at once."""

import json

import pytest
from kit.planned_query import PlannedQuery
from kit.registries import begun, planned, register
from kit.scenes import hosted_job
from starlette.testclient import TestClient

from upstream.conf.errors import OptionError
from upstream.core.feedback.checkpoint_layout import queue_folder, write_steps
from upstream.core.feedback.control import ControlConflictError
from upstream.core.feedback.reports import QueueReport, RowSample, sample_folder, write_report
from upstream.hosting.command_source import CommandPlanner
from upstream.hosting.registry import registry_now
from upstream.hosting.reports import part_costs, part_reports
from upstream.storage.folder import TableFolder
from upstream.workbench.control import ControlTables, control_tables
from upstream.workbench.server import create_app
from upstream.workbench.watch import UnknownNameError, Watch

from .pipeline import Pipeline, row

BEARER = {"Authorization": "Bearer t"}


@pytest.fixture
def query(tmp_path):
    query = PlannedQuery(tmp_path)
    query.batch()
    return query


@pytest.fixture
def client(query):
    watch = Watch([str(query.sink.folder)], {})
    watch.refresh()
    with TestClient(create_app(watch, token="t", hosts=["testserver"]), headers=BEARER) as client:
        yield client


def values(tables, entity):
    return {each["name"]: each["value"] for each in tables.entity(entity)["attributes"]}


def test_each_entity_shows_what_its_last_batch_had(query):
    tables = control_tables(str(query.sink.path), {})
    assert [each["id"] for each in tables.to_json()["entities"]] == ["source/s1", "queue/0", "sink"]
    limits = {"maxRowsPerTrigger": 40, "maxBytesPerTrigger": "none"}
    assert values(tables, "source") == {**limits, "sample": None, "connector": "files"}
    assert values(tables, "queue/0")["budget"] == "500"
    assert values(tables, "sink")["target"] == "none"
    assert values(tables, "sink")["key"] == "k"
    modes = {each["name"]: each["mode"] for each in tables.entity("queue")["attributes"]}
    assert (modes["budget"], modes["cost"], modes["policy"]) == ("live", "live", "restart")
    with pytest.raises(UnknownNameError, match="source/s1"):
        tables.entity("window")
    with pytest.raises(OptionError, match="at a restart"):
        tables.change("queue", "policy", "fifo", by="me")


def test_a_change_is_pending_until_a_batch_has_taken_it_and_is_undone_by_another(query):
    place = str(query.sink.path)
    changed = control_tables(place, {}).change("queue", "budget", "20000", by="me")["attributes"][0]
    assert (changed["value"], changed["changed"]["after"], changed["changed"]["taken"]) == ("500", 20000, None)
    query.batch()
    query.batch()
    control_tables(place, {}).change("sink", "target", "p99 < 1 s", by="you")
    query.batch()
    shown = control_tables(place, {})
    budget = shown.entity("queue")["attributes"][0]
    change = budget["changed"]
    assert (budget["value"], change["before"], change["by"], change["taken"]["batch"]) == ("20000", None, "me", 1)
    assert values(shown, "sink")["target"] == "p99 < 1.0 s"
    assert shown.entity("sink")["attributes"][0]["changed"]["taken"]["batch"] == 3
    shown.change("queue", "budget", change["before"], by="me")
    query.batch()
    again = control_tables(place, {})
    assert values(again, "queue")["budget"] == "500"
    history = [(each["attribute"], each["before"], each["after"]) for each in again.to_json()["changes"]]
    assert sorted(history, key=str) == sorted(
        [("budget", None, 20000), ("target", None, "p99 < 1 s"), ("budget", 20000, None)], key=str
    )


def test_the_second_of_two_browsers_sees_the_change_of_the_first(client, query):
    seen = client.get("/api/v1/entities/queue/0").json()["version"]

    def change(version, value):
        body = {"version": version, "attribute": "budget", "value": value, "by": "a"}
        return client.patch("/api/v1/entities/queue/0", json=body)

    assert change(seen, 700).json()["version"] == seen + 1
    refused = change(seen, 900)
    assert refused.status_code == 409
    assert "queue/0.budget is 700" in refused.json()["error"]
    assert change(seen + 1, 900).status_code == 200
    assert change(seen + 2, "none of it").status_code == 400
    assert change(seen + 2, "900").json()["version"] == seen + 2, "nothing changes"
    assert change(seen + 1, "900").status_code == 409
    query.batch()
    assert client.get("/api/v1/entities").json()["entities"][1]["attributes"][0]["value"] == "900"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("queue/9", {"version": 0, "attribute": "budget", "value": 1}, 404),
        ("queue/0", {"version": 0, "attribute": "shards", "value": 1}, 400),
        ("queue/0", {"version": "0", "attribute": "budget", "value": 1}, 400),
        ("queue/0", {"version": 0, "attribute": "budget"}, 400),
        ("queue/0", {"version": 0, "attribute": "budget", "value": [1]}, 400),
        ("queue/0?checkpoint=/etc", {"version": 0, "attribute": "budget", "value": 1}, 404),
        ("sink", {"version": 0, "attribute": "maintenance", "value": "now"}, 200),
    ],
)
def test_changes_are_checked(client, path, body, status):
    assert client.patch(f"/api/v1/entities/{path}", json=body).status_code == status


def test_what_cannot_change_while_the_query_runs_shows_why(query):
    queue = {"kind": "operator", "text": "queue", "facts": [], "inputs": [], "fixed": {"shards": "16"}}
    join = {**queue, "text": "join", "folder": "upstream-joins/0", "fixed": {"on": "k"}}
    settings = {"policy": "in-place", "weight": "w", "stalest keys": "20"}
    write_steps(
        TableFolder(str(query.sink.checkpoint)),
        [
            {**queue, "folder": "upstream-queue", "changeable": settings},
            {**join, "changeable": {"state limit": "512 bytes, then fail"}},
        ],
    )
    for shard, waiting in enumerate((10, 5_000)):
        write_report(queue_folder(str(query.sink.checkpoint)), QueueReport(shard, waiting=waiting))
    tables = ControlTables(TableFolder(str(query.sink.checkpoint)))
    shown = {
        each["name"]: (each["value"], each["unit"], each["mode"], each["why"])
        for name in ("queue", "joins/0")
        for each in tables.entity(name)["attributes"]
    }
    assert shown["budget"] == ("500", "rows a batch", "live", "")
    assert shown["cost"] == ("auto", "", "restart", "Only the policies linecutting and auto use it.")
    assert shown["sampleRate"] == ("auto", "", "restart", "Only the policy shed samples.")
    assert shown["stalest keys"] == ("20", "keys of each shard", "restart", "The query reads it when it starts.")
    assert shown["half life"][0] is None
    assert shown["shards"] == ("16", "shards", "fixed", "The checkpoint's state is divided or ordered by it.")
    assert shown["memory"][:3] == ("1.5 MB", "of a task, for rows that wait", "fixed"), "of the fullest shard"
    assert shown["state limit"][0::2] == ("512 bytes, then fail", "restart")
    with pytest.raises(OptionError, match="Only the policy shed samples"):
        tables.change("queue", "sampleRate", 0.5, by="me")


def test_the_duration_of_a_jobs_batches_is_an_attribute_of_the_job(tmp_path):
    checkpoint = begun(tmp_path)
    planner = CommandPlanner(checkpoint, (0,), 2.0)
    (tmp_path / "cp" / "offsets").mkdir()
    command = planner.initial()

    def batch(number):
        nonlocal command
        command = planner.plan(command, number)
        (tmp_path / "cp" / "offsets" / str(number)).write_text("\n".join(["v1", "{}", json.dumps(command)]))
        return ControlTables(TableFolder(checkpoint))

    assert values(batch(0), "job") == {"batchDuration": "2 seconds", "shards": 8}
    batch(0).change("job", "batchDuration", "500 ms", by="me")
    duration = batch(1).entity("job")["attributes"][0]
    assert (duration["value"], duration["changed"]["taken"]["batch"]) == ("500 milliseconds", 1)
    batch(1).change("job", "batchDuration", duration["changed"]["before"], by="me")
    assert values(batch(2), "job")["batchDuration"] == "2 seconds"


@pytest.mark.parametrize("gone", ["id", "connector", "asked", "queue", "now_us"])
def test_an_offset_of_another_version_is_refused_in_words(client, query, gone):
    file = query.sink.checkpoint / "offsets" / "0"
    head, settings, *offsets = file.read_text().splitlines()
    left = [{name: each for name, each in json.loads(line).items() if name != gone} for line in offsets]
    file.write_text("\n".join([head, settings, *map(json.dumps, left)]))
    answer = client.get("/api/v1/entities")
    if gone in ("id", "connector", "queue"):
        assert answer.status_code == 400
        assert "offsets of batch 0" in answer.json()["error"]
    else:
        assert answer.status_code == 200, "nothing shown needs it"


def test_only_watched_checkpoints_are_read(client, query):
    def status(place):
        return client.get("/api/v1/entities", params={"checkpoint": str(place)}).status_code

    assert [status(query.sink.checkpoint), status(query.sink.folder), status("/etc")] == [200, 404, 404]


def test_weights_and_pauses_of_hosted_queries_go_through_their_registry(tmp_path):
    checkpoint = begun(tmp_path)
    register(checkpoint, "slow")
    tables = ControlTables(TableFolder(checkpoint))
    with pytest.raises(ControlConflictError):
        tables.change("query/slow", "weight", 4, by="me", seen=0)
    tables.change("query/slow", "weight", "4", by="me", seen=1)
    planner = CommandPlanner(checkpoint, (0,))
    command = planner.plan(planner.initial(), 5)
    (tmp_path / "cp" / "offsets").mkdir()
    (tmp_path / "cp" / "offsets" / "0").write_text("\n".join(["v1", "{}", json.dumps(command)]))
    shown = ControlTables(TableFolder(checkpoint)).change("query/slow", "paused", True, by="you")
    weight, paused, _ = shown["attributes"]
    assert (weight["value"], paused["value"], shown["title"]) == (4.0, True, "paused by you")
    assert weight["changed"]["before"] == 1.0
    assert weight["changed"]["taken"] == {"batch": 0, "at_us": 5}
    assert (paused["changed"]["by"], paused["changed"]["taken"]) == ("you", None)
    assert paused["changed"]["at_us"] > weight["changed"]["at_us"]
    with pytest.raises(OptionError, match="above 0"):
        ControlTables(TableFolder(checkpoint)).change("query/slow", "weight", "heavy", by="you")
    back = ControlTables(TableFolder(checkpoint)).change("query/slow", "paused", "false", by="you")
    assert values(ControlTables(TableFolder(checkpoint)), "query/slow")["paused"] is False
    assert back["version"] == 4
    history = ControlTables(TableFolder(checkpoint)).to_json()["changes"]
    assert sorted((each["version"], each["attribute"]) for each in history) == [
        (2, "weight"), (3, "paused"), (4, "paused"),
    ]  # fmt: skip


def test_the_budget_of_a_views_queue_is_an_attribute_of_the_view(tmp_path):
    checkpoint = begun(tmp_path)
    text = "SELECT vehicle_id, speed FROM LATEST(buses)"
    register(checkpoint, "scored", text, queue={"queue": "in-place", "access_interval": "9 s"})
    register(checkpoint, "plain", text)
    tables = ControlTables(TableFolder(checkpoint))
    assert values(tables, "query/scored")["budget"] == "auto"
    budget = tables.change("query/scored", "budget", 20000, by="me")["attributes"][2]
    assert (budget["value"], budget["changed"]["before"], budget["changed"]["by"]) == ("20000", "auto", "me")
    (scored, _) = registry_now(checkpoint).queries.values()
    assert (scored.id, scored.queue["access_interval"]) == (1, "9 s")
    for value in ("few", None):
        with pytest.raises(OptionError, match="budget"):
            ControlTables(TableFolder(checkpoint)).change("query/scored", "budget", value, by="me")
    with pytest.raises(OptionError, match="The view has no queue"):
        tables.change("query/plain", "budget", 5, by="me")


def test_a_sample_has_the_first_rows_of_the_batch_that_took_the_request_and_a_repeat_writes_it_again(tmp_path):
    pipeline = Pipeline(tmp_path)
    pipeline.lines("a", *(row(key, key, "long" * 400) for key in range(3)))
    first = pipeline.batch()
    tables = control_tables(str(pipeline.sink.path), {})
    source = f"source/{pipeline.offsets[0]['id']}"
    assert tables.sample(source)["asked"] is None
    for entity in (source, "sink"):
        tables.change(entity, "sample", "now", by="me")
    assert tables.sample("sink")["rows"] == []
    pipeline.batch()  # takes the request without rows
    pipeline.lines("a", *(row(key, 100 + key, "new") for key in [*range(30), 0]))
    batch = pipeline.batch()
    assert batch == first + 2
    came, kept = tables.sample(source), tables.sample("sink")
    assert (came["version"], came["batches"], kept["version"], kept["batches"]) == (1, [-1], 2, [batch])
    assert came["columns"] == ["k", "t", "v"]
    assert [each[0] for each in came["rows"]] == [str(key) for key in range(20)]
    assert len({each[0] for each in kept["rows"]}) == len(kept["rows"]) == 20
    pipeline.run(batch)
    assert (tables.sample(source), tables.sample("sink")) == (came, kept)
    pipeline.lines("a", row(7, 200, "long" * 400))
    pipeline.batch()
    assert (tables.sample(source), tables.sample("sink")) == (came, kept), "one batch, not each"
    tables.change(source, "sample", "now", by="me")
    pipeline.lines("a", row(7, 201, "long" * 400))
    pipeline.batch()
    assert [len(each) for each in tables.sample(source)["rows"][0]] == [1, 16, 1001]


def test_a_part_of_hosted_queries_gives_rows_on_request_and_is_no_entity_of_the_list(tmp_path):
    checkpoint = hosted_job(tmp_path)
    key = next(iter(part_costs(part_reports(TableFolder(str(checkpoint))))))
    tables = ControlTables(TableFolder(str(checkpoint)))
    assert not [each for each in tables.to_json()["entities"] if each["kind"] == "part"]
    with pytest.raises(UnknownNameError, match="part/other"):
        tables.change("part/other", "sample", "now", by="me")
    tables.change(f"part/{key}", "sample", "now", by="me")
    assert (tables.sample(f"part/{key}")["asked"], tables.sample(f"part/{key}")["rows"]) == (1, [])
    planner = CommandPlanner(str(checkpoint), (1,))
    planned(checkpoint, 5, planner.plan(planner.initial(), 7))
    shown = ControlTables(TableFolder(str(checkpoint))).to_json()["changes"][0]
    assert (shown["entity"], shown["taken"]) == (f"part/{key}", {"batch": 5, "at_us": 7})
    for shard, batch in ((0, 7), (1, 6), (2, 6)):
        rows = [[f"{shard} {number}"] for number in range(9)]
        write_report(
            sample_folder(TableFolder(str(checkpoint)), f"part/{key}"), RowSample(shard, 1, batch, ["k"], rows)
        )
    found = tables.sample(f"part/{key}")
    assert (found["version"], found["batches"], len(found["rows"])) == (1, [6, 7], 20)
    assert [each[0] for each in found["rows"]][9::9] == ["2 0", "0 0"], "those of the first batch stay the first"
