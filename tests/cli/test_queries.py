import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from kit.registries import COUNTS, FAST, OF_FAST, begun

from upstream.hosting.journal import Journal
from upstream.hosting.registry import registry_now

from . import in_process


@pytest.fixture
def checkpoint(tmp_path):
    return begun(tmp_path)


def done(checkpoint: str, *arguments: str, given: str = "") -> str:
    return in_process.done("queries", checkpoint, *arguments, given=given).strip()


def refused(checkpoint: str, *arguments: str, code: int = 2) -> str:
    return in_process.refused("queries", checkpoint, *arguments, code=code)


def test_each_command_makes_its_change(checkpoint):
    assert done(checkpoint, "view", "fast", "-", given=FAST + "\n") == "view fast: version 1"
    assert registry_now(checkpoint).catalog.views == {"fast": FAST}
    assert done(checkpoint, "register", "q", OF_FAST, "--weight", "2", "--buckets", "3") == "register q: version 2"
    query = registry_now(checkpoint).queries["q"]
    assert (query.text, query.weight, query.buckets, query.active) == (OF_FAST, 2.0, 3, True)
    assert done(checkpoint, "register", "idle", COUNTS, "--inactive") == "register idle: version 3"
    assert not registry_now(checkpoint).queries["idle"].active
    assert done(checkpoint, "activate", "idle") == "activate idle: version 4"
    assert registry_now(checkpoint).queries["idle"].id == 4
    assert done(checkpoint, "alter", "q", "-", given=COUNTS) == "alter q: version 5"
    assert registry_now(checkpoint).queries["q"].text == COUNTS
    assert done(checkpoint, "alter", "q", "--weight", "0.5") == "alter q: version 6"
    assert registry_now(checkpoint).queries["q"].weight == 0.5
    assert done(checkpoint, "alter", "q", "--weight", "0.5") == "nothing to change: version 6"
    assert done(checkpoint, "deactivate", "q", "--reason", "too dear") == "deactivate q: version 7"
    assert registry_now(checkpoint).queries["q"].reason == "too dear"
    assert done(checkpoint, "drop-view", "fast") == "drop view fast: version 8"
    assert registry_now(checkpoint).catalog.views == {}
    assert done(checkpoint, "drop", "q") == "drop q: version 9"
    assert registry_now(checkpoint).queries.keys() == {"idle"}


def test_the_list_has_queries_and_views_in_each_form(checkpoint):
    done(checkpoint, "view", "fast", FAST)
    done(checkpoint, "register", "q", OF_FAST)
    done(checkpoint, "deactivate", "q", "--reason", "too dear")
    table = done(checkpoint, "list")
    for part in ("fast", FAST, OF_FAST, "no: too dear"):
        assert part in table
    assert json.loads(done(checkpoint, "list", "--format", "json")) == {
        "name": "q", "text": OF_FAST, "weight": 1.0, "active": False, "reason": "too dear",
        "whole_from": None, "staleness": None, "waiting": None,
    }  # fmt: skip
    assert done(checkpoint, "list", "--format", "csv").startswith("name,text,weight,active,reason,whole_from,")


def test_a_plan_is_explained_by_name_or_text(checkpoint):
    done(checkpoint, "register", "q", COUNTS)
    assert "key: route_id" in done(checkpoint, "explain", "q")
    assert done(checkpoint, "explain", "-", given=COUNTS).replace("; shared with q", "") == done(
        checkpoint, "explain", "Q"
    )


def test_errors_point_at_the_place_and_change_nothing(checkpoint, tmp_path):
    wrong = in_process.command("queries", checkpoint, "register", "q", "SELECT speeed FROM LATEST(buses)")
    assert wrong.returncode == 2
    assert wrong.stderr.splitlines()[1:] == ["    SELECT speeed FROM LATEST(buses)", "           ^^^^^^"]
    assert "no query 'q'" in refused(checkpoint, "drop", "q")
    assert Journal(checkpoint).version() == 0
    assert "has no registry of queries" in refused(str(tmp_path), "list", code=1)


def test_relations_are_declared_listed_refreshed_and_dropped(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_deltalake("routes", pa.table({"id": ["a"]}))
    assert done(checkpoint, "relation", "routes", "routes") == "relation routes: version 1"
    write_deltalake("routes", pa.table({"id": ["b"]}), mode="append")
    assert done(checkpoint, "relation", "routes", "routes") == "nothing to change: version 1"
    assert f"version 0 of {tmp_path / 'routes'}" in done(checkpoint, "list")
    assert done(checkpoint, "refresh", "routes") == "refresh routes: version 2"
    assert done(checkpoint, "refresh", "routes") == "nothing to change: version 2"
    assert f"version 1 of {tmp_path / 'routes'}" in done(checkpoint, "list")
    assert done(checkpoint, "drop-relation", "routes") == "drop relation routes: version 3"
    assert "routes" not in registry_now(checkpoint).catalog.relations


def test_a_query_has_the_time_zone_that_is_given(checkpoint):
    hours = "SELECT vehicle_id, HOUR(timestamp) AS h FROM LATEST(buses)"
    done(checkpoint, "register", "q", hours, "--time-zone", "Europe/Berlin")
    assert "'Europe/Berlin'" in done(checkpoint, "explain", "q")
    done(checkpoint, "alter", "q", f"{hours} WHERE speed > 1")
    assert registry_now(checkpoint).queries["q"].time_zone == "Europe/Berlin"
    done(checkpoint, "alter", "q", hours, "--time-zone", "GMT+2")
    assert registry_now(checkpoint).queries["q"].time_zone == "+02:00"
    assert "Mars/Base" in refused(checkpoint, "register", "mars", hours, "--time-zone", "Mars/Base")
