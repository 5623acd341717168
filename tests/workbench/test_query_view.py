"""Hosted queries over HTTP: listed in pages, changed by the journal, with errors at their place."""

import os

import polars as pl
import pytest
from kit.continuous import CATALOG

from upstream.conf.process_identity import Process
from upstream.core.feedback.checkpoint_layout import stage_folder
from upstream.core.feedback.reports import write_report
from upstream.hosting.host_lease import CheckpointLease
from upstream.hosting.journal import Journal
from upstream.hosting.registry import registry_now
from upstream.hosting.reports import HostTimes, PartsReport, QueryReport
from upstream.language import bind
from upstream.operators.relations.plan.common_parts import part_key
from upstream.storage.folder import TableFolder
from upstream.workbench.query_view import accuracy_of

from .hosted import COUNTS, NOW_US, Job, S, page, register

BASE = "/api/v1/queries"


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def client(job):
    with page(job.folder) as client:
        yield client


def sent(client, method, path="", **body):
    return client.request(method, BASE + path, json=body)


def hold(job, ago_s=0.0):
    """Take the lease for this process, at some time before now."""
    lease = CheckpointLease(TableFolder(str(job.checkpoint)))
    lease.hold("host", Process.of(os.getpid()), 60 * S, int(NOW_US - ago_s * S))


def finish(job, batch=4):
    (job.checkpoint / "commits").mkdir(exist_ok=True)
    (job.checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def test_figures_of_commits_of_different_ages_are_not_shown_as_of_one_moment(job, client):
    """The second query has had no result for eight minutes, and nothing of it waits."""
    hold(job)
    finish(job)
    old = QueryReport(begun=True, batch=2, staleness_s=103.9, committed_at_us=NOW_US - 480 * S)
    new = QueryReport(begun=True, batch=4, staleness_s=21.9, committed_at_us=NOW_US - 2 * S)
    job.report(per_route=new, fast=old)
    first, second = client.get(BASE).json()["queries"]
    assert (first["staleness_now_s"], first["past"]) == (21.9, False)
    assert (second["staleness_now_s"], second["past"], second["staleness_s"]) == (0.0, True, 103.9)
    at_us = NOW_US - 40 * S  # a batch begins, and does not end
    (job.checkpoint / "offsets" / "5").write_text(f'v1\n{{"batchTimestampMs":{at_us // 1000}}}\n{{"topic":{{"0":7}}}}')
    first, second = client.get(BASE).json()["queries"]
    assert (first["staleness_now_s"], second["staleness_now_s"]) == (40.0, 40.0)


def test_queries_without_a_process_have_stopped(job, client):
    """The line above the list and the states in it come of one lease."""
    job.report(per_route=QueryReport(begun=True, batch=4, staleness_s=1.0, committed_at_us=NOW_US - 3 * S))
    finish(job)
    found = client.get(BASE).json()
    assert (found["runs"], found["loss"], [each["state"] for each in found["queries"]]) == (False, "", ["stopped"] * 2)
    assert (found["queries"][0]["staleness_now_s"], found["queries"][0]["past"]) == (None, True)
    hold(job, ago_s=200)
    found = client.get(BASE).json()
    mine = Process.of(os.getpid())
    assert found["loss"] == f"process {mine.pid} on {mine.host} has not renewed its lease for 3 min 20 s"
    assert found["queries"][0]["state"] == "stopped"


def test_the_list_has_figures_of_the_reports_and_the_state_of_each(job, client):
    hold(job)
    job.report(per_route=QueryReport(begun=True, rows=9, staleness_s=1.5, cost_s=0.1, waiting_since_us=NOW_US - 7 * S))
    found = client.get(BASE).json()
    assert (found["job"], found["total"], found["version"], found["taken_version"], found["taken_batch"]) == (
        "cp", 2, 2, 2, 4
    )  # fmt: skip
    first, second = found["queries"]
    assert (first["name"], first["weight"], first["state"], first["rows"]) == ("per_route", 2, "running", 9)
    assert (first["staleness_s"], first["waiting_s"], first["cost_s"]) == (1.5, 7.0, 0.1)
    assert second["state"] == "waits for its first batch"
    assert (found["runs"], found["loss"]) == (True, "")
    assert (first["state_bytes"], first["costs"]["evaluation_s"]["whole"]) == (None, 0)
    buses = next(each for each in found["streams"] if each["name"] == "buses")
    assert buses["columns"]["speed"] == "double"


def test_each_query_has_its_share_of_the_parts_that_several_read(job, client):
    job.report(HostTimes(tasks=2), per_route=QueryReport(begun=True, cost_s=0.1))
    shared = part_key(bind("SELECT * FROM LATEST(buses)", CATALOG).plan)
    parts = [[shared, [1, 2], 0.0, 0.4, 5, 100, []], ["own", [1], 0.0, 0.2, 1, 6, []]]
    write_report(stage_folder(str(job.checkpoint), 0), PartsReport(0, 4, 0, 1.0, {"e": (4, parts)}))
    first, second = client.get(BASE, params={"order": "state_bytes"}).json()["queries"]
    assert (first["name"], first["cost_s"], first["state_bytes"]) == ("per_route", pytest.approx(0.3), 56)
    assert first["costs"]["evaluation_s"] == pytest.approx({"share": 0.2, "whole": 0.3, "alone": 0.1})
    assert first["costs"]["state_bytes"] == {"share": 56, "whole": 106, "alone": 6}
    assert (second["cost_s"], second["state_bytes"]) == (pytest.approx(0.1), 50)
    (kept,) = client.get(f"{BASE}/fast").json()["state_parts"]
    assert (kept["part"], kept["bytes"]) == ("Latest", 100)


def test_a_workbench_without_a_job_has_no_list_and_says_so_elsewhere(tmp_path):
    with page(tmp_path) as client:
        assert client.get(BASE).json() == {"job": None, "jobs": [], "queries": []}
        assert client.get(f"{BASE}-words").status_code == 404


def test_the_list_is_paged_searched_and_ordered(job, client):
    for number in range(60):
        register(
            str(job.checkpoint), f"q{number:02d}", f"SELECT COUNT(*) AS n{number} FROM LATEST(buses)", weight=number + 3
        )
    found = client.get(BASE, params={"offset": 10, "limit": 5, "order": "name"}).json()
    assert [each["name"] for each in found["queries"]] == [f"q{number:02d}" for number in range(8, 13)]
    assert found["total"] == 62
    assert [each["name"] for each in client.get(BASE, params={"search": "N7 "}).json()["queries"]] == ["q07"]
    heaviest = client.get(BASE, params={"order": "weight", "limit": 1}).json()["queries"]
    assert heaviest[0]["name"] == "q59"
    assert client.get(BASE, params={"order": "text; DROP"}).status_code == 400
    assert client.get(BASE, params={"limit": 1000}).status_code == 400


def test_a_query_is_created_changed_paused_and_dropped_by_the_journal(job, client):
    journal = Journal(str(job.checkpoint))
    made = sent(client, "POST", name="fleet", query="SELECT COUNT(*) AS n FROM LATEST(buses)", weight=3)
    assert (made.status_code, made.json()["version"]) == (201, 3)
    assert sent(client, "PATCH", "/FLEET", weight=0.5).status_code == 200
    assert sent(client, "PATCH", "/fleet", query=COUNTS, active=False, reason="too dear").status_code == 200
    kinds = [each.kind for each in journal.read(range(3, journal.version() + 1))]
    assert kinds == ["create", "alter", "alter", "deactivate"]
    paused = client.get(BASE, params={"search": "fleet"}).json()["queries"][0]
    assert (paused["state"], paused["reason"], paused["weight"], paused["text"]) == ("paused", "too dear", 0.5, COUNTS)
    found = client.get(BASE).json()
    assert found["version"] - found["taken_version"] == 4, "no batch has them yet"
    assert sent(client, "PATCH", "/fleet", active=True).status_code == 200
    assert sent(client, "PATCH", "/fleet", active=False, keep_state=True).status_code == 200
    paused = client.get(BASE, params={"search": "fleet"}).json()["queries"][0]
    assert (paused["state"], paused["reason"][:17]) == ("paused", "state kept since ")
    assert sent(client, "DELETE", "/fleet").status_code == 200
    assert "fleet" not in registry_now(str(job.checkpoint)).queries
    assert sent(client, "DELETE", "/fleet").status_code == 404


def test_a_view_is_created_and_its_name_can_be_used(client):
    assert (
        sent(client, "POST", name="quick", query="SELECT * FROM LATEST(buses) WHERE speed > 5", view=True).status_code
        == 201
    )
    assert sent(client, "POST", name="of_quick", query="SELECT COUNT(*) AS n FROM quick").status_code == 201
    assert "quick" in client.get(f"{BASE}-words").json()["relations"]


def test_an_error_of_a_text_names_its_place(job, client):
    for answer in (
        sent(client, "POST", name="bad", query="SELECT route_id,\n  speeed FROM LATEST(buses)"),
        client.get(f"{BASE}-plan", params={"text": "SELECT route_id,\n  speeed FROM LATEST(buses)"}),
    ):
        assert answer.status_code == 400
        found = answer.json()
        assert (found["line"], found["column"]) == (2, 3)
        assert "speeed" in found["error"]
        assert "speed" in found["hint"]
        assert found["excerpt"].splitlines()[-1].strip() == "^^^^^^"
    assert Journal(str(job.checkpoint)).version() == 2


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"name": "../x", "query": COUNTS}, "cannot name a query"),
        ({"name": "per_route", "query": "SELECT 1 AS one"}, "already"),
        ({"name": "q", "query": COUNTS, "weight": "2"}, "weight='2'"),
        ({"name": "q", "query": COUNTS, "weight": True}, "weight='True'"),
        ({"name": "q", "query": COUNTS, "weight": -1}, "weight=-1"),
        ({"name": "q", "query": COUNTS, "buckets": 1.5}, "buckets='1.5'"),
        ({"name": "q", "query": 7}, "query='7'"),
        ({"name": "q", "query": ""}, "the text of 'q'"),
        ({"name": "q", "query": COUNTS, "table": "/etc"}, "unknown values: table"),
    ],
)
def test_a_wrong_value_is_refused_and_journals_nothing(job, client, body, part):
    answer = sent(client, "POST", **body)
    assert answer.status_code == 400
    assert part in answer.json()["error"]
    assert Journal(str(job.checkpoint)).version() == 2


def test_nothing_to_change_is_refused(client):
    assert sent(client, "PATCH", "/fast").status_code == 400
    assert client.get(BASE, params={"job": "other"}).status_code == 404


def test_the_detail_has_the_plan_the_state_by_part_and_who_shares_it(client):
    found = client.get(f"{BASE}/FAST").json()
    assert found["statement"].startswith("CREATE MATERIALIZED VIEW fast")
    assert "Latest" in found["plan"]
    (kept,) = found["state_parts"]
    assert kept["shared_with"] == ["per_route"]
    assert kept["share"] == 0.5
    assert found["columns"] == {"vehicle_id": "string", "speed": "double"}
    assert found["accuracy"] == []


def test_what_results_lack_is_said():
    sampled = bind("SELECT APPROX_COUNT_DISTINCT(sym) AS n FROM trade [RANGE 1 HOUR] SAMPLE(10)", CATALOG)
    assert accuracy_of(sampled, QueryReport(begun=True, late=1200)) == [
        "It reads a sample of 10 % of the rows.",
        "APPROX_COUNT_DISTINCT is an estimate.",
        "1,200 rows came too late for it.",
        "It is not known from which time on its results are complete.",
    ]


def test_results_are_rows_of_the_table_and_a_sample_is_from_all_over_it(job, client):
    path = f"{BASE}/per_route/results"
    assert client.get(path).json()["version"] is None, "no batch has made its table"
    rows = pl.DataFrame({"route_id": [f"r{n:04d}" for n in range(1000)], "n": range(1000)})
    rows.write_delta(job.folder / "lake" / "per_route")
    found = client.get(path, params={"limit": 3}).json()
    assert (found["columns"], found["total"], found["rows"]) == (
        ["route_id", "n"], 1000, [["r0000", 0], ["r0001", 1], ["r0002", 2]]
    )  # fmt: skip
    assert client.get(path, params={"after": found["version"]}).json() == {"version": 0, "unchanged": True}
    sample = client.get(path, params={"limit": 10, "sample": "true"}).json()["rows"]
    assert [row[1] for row in sample] == list(range(0, 1000, 100))
    assert client.get(path, params={"limit": 201}).status_code == 400


def test_words_for_completion_are_those_that_queries_can_have(client):
    words = client.get(f"{BASE}-words").json()
    assert "buses" in words["relations"]
    assert "route_id" in words["columns"]
    assert {"COUNT", "HOUR", "ROW_NUMBER"} <= set(words["functions"])
    assert {"SELECT", "LATEST", "MATERIALIZED"} <= set(words["keywords"])
    assert words["queries"] == ["fast", "per_route"]
