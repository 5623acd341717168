"""One key in the log: the commit that decided its row, through rewrites, marks and what is gone."""

import pytest
from deltalake import DeltaTable

from upstream.sink.maintenance.compact import compact_table
from upstream.sink.spec.options import parse_sink_options

from .pipeline import Pipeline, row, two_batches, why


@pytest.fixture
def two(tmp_path):
    return two_batches(tmp_path)


def test_a_blank_line_is_no_row_and_a_carried_row_keeps_its_commit(two):
    found = why(two, 2)
    assert (found.decided["line"], found.decided["batch"], found.superseded) == (3, 0, 0)
    table = DeltaTable(str(two.sink.path))
    compact_table(parse_sink_options(two.sink.given), table)
    again = why(two, 2)
    assert (again.decided, again.commit, len(again.events)) == (found.decided, found.commit, 1)


def test_a_trimmed_journal_and_a_trimmed_log(two):
    (two.sink.checkpoint / "offsets" / "0").unlink()
    (two.sink.checkpoint / "commits" / "0").unlink()
    found = why(two, 2)
    assert (found.decided, found.superseded) == (None, None)
    assert found.commit["batch_id"] == 0
    assert any("only batches from 1 on" in each for each in found.unknown)
    assert why(two, 77).verdict == "unseen"  # by the input from its beginning
    DeltaTable(str(two.sink.path)).create_checkpoint()
    for version in (0, 1):
        (two.sink.path / "_delta_log" / f"{version:020d}.json").unlink()
    found = why(two, 2)
    assert found.commit is None
    assert any("the log begins with version 2" in each for each in found.unknown)


def test_the_commit_is_found_by_the_row_number_beyond_the_files_that_are_left(two):
    two.lines("a.jsonl", row(2, 50), row(5, 50))
    two.batch()
    written = why(two, 2).commit
    for _ in range(3):
        two.lines("a.jsonl", row(9, 60))
        two.batch()
    live = two.sink.live_files()
    for path in two.sink.files():
        if path not in live:
            (two.sink.path / path).unlink()
    found = why(two, 2)
    assert found.commit == written
    assert found.decided["batch"] == 2


@pytest.mark.parametrize(("engine", "history"), [("rewrite", "latest"), ("vectors", "latest"), ("rewrite", "latest 2")])
def test_engines_and_histories(tmp_path, engine, history):
    pipeline = Pipeline(tmp_path, sink={"engine": engine, "history": history, "buckets": "1"})
    for number in range(4):
        pipeline.lines("a.jsonl", row(1, number, f"v{number}"), *(row(key, number) for key in range(10, 30)))
        pipeline.batch()
    pipeline.lines("a.jsonl", row(10, 9))
    pipeline.batch()
    found = why(pipeline, 1)
    assert (found.row["v"], found.commit["batch_id"]) == ("v3", 3)
    assert found.rows == (1 if history == "latest" else 2)
    assert [each["row"]["v"] for each in found.events][:2] == ["v3", "v2"]
