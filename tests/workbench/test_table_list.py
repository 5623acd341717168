"""The list of tables: the worst first, broken ones with their reasons, and a thousand in turns."""

import os
import shutil

import pytest
from kit.scenes import SECOND, Scene, every_state
from starlette.testclient import TestClient

from upstream.workbench import table_list
from upstream.workbench.server import create_app
from upstream.workbench.table_list import TableList
from upstream.workbench.watch import Watch

BEARER = {"Authorization": "Bearer t"}


def listed(folder, now_us=None, **params):
    watch = Watch([str(folder)], {}, **({} if now_us is None else {"clock_us": lambda: now_us}))
    watch.refresh()
    app = create_app(watch, token="t", hosts=["testserver"])
    with TestClient(app, headers=BEARER, raise_server_exceptions=False) as client:
        answer = client.get("/api/v1/tables", params=params)
        assert answer.status_code == 200, answer.text
        for each in answer.json()["tables"]:
            if each["version"] is not None:
                found = client.get("/api/v1/overview", params={"table": each["name"]})
                assert (found.status_code, found.json()["state"]) == (200, each.get("state", found.json()["state"]))
    return answer.json()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    return folder, every_state(folder, batches=6)


def test_the_worst_tables_come_first_with_their_figures(scenes):
    folder, states = scenes
    now_us = states["running"].now_us + SECOND
    found = listed(folder, now_us)
    rows = {each["name"]: each for each in found["tables"]}
    assert [*rows] == ["failed", "late", "overloaded", "running", "empty", "ended"]
    assert found["states"] == dict.fromkeys(rows, 1)
    assert (found["total"], found["matching"], found["now_us"]) == (6, 6, now_us)
    assert rows["failed"]["why"] == "Process 4711 has ended."
    assert rows["late"]["why"].startswith("Completeness waits for 2.csv, silent for")
    running = rows["running"]
    assert (running["target"], running["target_met"], running["why"]) == ("p99 < 10.0 s", True, "")
    assert running["committed_at_us"] == states["running"].now_us
    assert running["staleness_now"]["mean"] > 0
    assert len(running["chart"]) == 6
    assert running["complete_up_to"].endswith("Z")


def test_a_filter_finds_all_of_its_words_and_a_limit_keeps_the_worst(scenes):
    folder, _ = scenes
    some = listed(folder, filter="E d", limit=1)
    assert ([each["name"] for each in some["tables"]], some["matching"], some["total"]) == (["failed"], 3, 6)
    names = listed(folder, only="names")
    assert (len(names["tables"]), names["total"]) == (6, 6)
    assert names["tables"][0].keys() == {"name", "version", "location"}


def test_what_is_broken_is_a_row_with_its_reason_and_hides_no_other(tmp_path):
    good = Scene(tmp_path, name="good").history(2).hold()
    shutil.copytree(os.fsencode(good.path), os.fsencode(tmp_path) + b"/caf\xe9")
    (tmp_path / "nothing").symlink_to(tmp_path / "gone")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("file", "link"):
        (tmp_path / name).mkdir()
    (tmp_path / "file" / "_delta_log").write_text("no folder")
    (tmp_path / "link" / "_delta_log").symlink_to(tmp_path / "gone")
    shutil.copytree(good.path, tmp_path / "cut")
    for entry in (tmp_path / "cut" / "_delta_log").glob("*.json"):
        entry.write_bytes(b'{"commitInfo": ')
    rows = {each["name"]: each for each in listed(tmp_path)["tables"]}
    assert {name: each["why"] for name, each in rows.items() if each["state"] == "unreadable"} == {
        "nothing": "The link leads to nothing.",
        "circle": "Too many levels of symbolic links.",
        "file": "Not a directory.",
        "link": "The link leads to nothing.",
        "cut": "The table cannot be read now: Expecting value: line 1 column 16 (char 15).",
    }
    assert {name for name, each in rows.items() if each["state"] == "running"} == {"good", "caf\\udce9"}


def test_many_tables_are_judged_in_turns_the_longest_unjudged_first(tmp_path, monkeypatch):
    scene = Scene(tmp_path, name="0").history(2).hold()
    for number in range(1, 5):
        shutil.copytree(scene.path, tmp_path / str(number))
    watch = Watch([str(tmp_path)], {})
    tables, states = TableList(watch), lambda: tables.answer(scene.now_us)["states"]
    assert states() == {"unread": 5}, "the watch has read none yet"
    watch.refresh()
    monkeypatch.setattr(table_list, "_FIRST_S", -1)
    assert states() == {"running": 5}, "a table with a new version comes before"
    judged = dict(tables._judged)
    states()
    assert tables._judged == judged, "they have just been judged"
    monkeypatch.setattr(table_list, "_AGAIN_S", 0)
    monkeypatch.setattr(table_list, "_JUDGING_S", -1)
    states()
    assert tables._judged == judged
