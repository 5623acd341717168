"""One key in the input: unread, being read, filtered, and which line it is."""

import pytest

from upstream.datasource.connectors.contract import Range, place_text
from upstream.workbench.key_feeds import place_shown

from .pipeline import Pipeline, row, two_batches, why


@pytest.fixture
def two(tmp_path):
    return two_batches(tmp_path)


def test_a_newer_update_that_is_unread_is_named(two):
    before = sorted(two.sink.checkpoint.rglob("*"))
    two.lines("b.jsonl", row(1, 50), row(7, 50))
    found = why(two, 1)
    assert found.verdict == "present"
    assert [(each["state"], each["place"]["line"], each["arrival_us"]) for each in found.coming] == [
        ("unread", 3, None)
    ]
    assert found.feeds[0]["files"] == 1
    assert found.feeds[0]["bytes"] == len((two.feed / "b.jsonl").read_text().partition("30, ")[2].partition("\n")[2])
    assert found.sentence.endswith("Further rows of the key are not in the table yet.")
    absent = why(two, 7)
    assert (absent.verdict, absent.coming[0]["place"]["line"]) == ("unread", 4)
    assert sorted(two.sink.checkpoint.rglob("*")) == before  # to look writes nothing


def test_a_batch_that_is_not_committed(two):
    two.lines("a.jsonl", row(9, 60))
    number = two.plan()
    found = why(two, 9)
    assert (found.verdict, found.coming[0]["batch"]) == ("in progress", number)
    two.run(number)
    assert why(two, 9).verdict == "present"


def test_what_the_source_drops_and_what_it_cannot_read(tmp_path):
    pipeline = Pipeline(tmp_path, where="v <> 'off'")
    bad = '{"k": 4, "t": '
    pipeline.lines("a.jsonl", row(1, 10), row(2, 10, "off"), {"k": 3, "t": None, "v": "x"}, bad, row(2, 20, "off"))
    pipeline.batch()
    filtered = why(pipeline, 2)
    assert (filtered.verdict, filtered.refused) == ("filtered", {"where v <> 'off'": 2})
    timeless = why(pipeline, 3)
    assert (timeless.verdict, timeless.letters[0]["exact"]) == ("dead letter", True)
    assert timeless.letters[0]["origin"] == f"{pipeline.feed / 'a.jsonl'}, row 3"
    assert "time column" in timeless.letters[0]["reason"]
    assert timeless.refused == {}  # the letter has the reason
    broken = why(pipeline, 4)
    assert (broken.verdict, [each["exact"] for each in broken.letters]) == ("dead letter", [False])
    assert why(pipeline, 40).verdict == "unseen"  # 4 is not the key 40, nor is 1
    assert why(pipeline, 40).letters == []


def test_a_source_without_a_record_has_a_place_and_no_count(tmp_path):
    pipeline = Pipeline(tmp_path)
    pipeline.given.pop("checkpointLocation")
    pipeline.start()
    pipeline.lines("a.jsonl", row(2, 10), row(1, 10))
    pipeline.batch()
    found = why(pipeline, 1)
    assert (found.decided["line"], found.superseded) == (2, None)
    assert any("no record of the source" in each for each in found.unknown)
    assert why(pipeline, 3).verdict == "unknown"


def test_a_row_of_a_feed_without_files_has_a_place_too():
    place = place_shown(Range("synthetic-0", {"from": [1, 2], "to": [3, 4]}, 9), 6, None)
    assert place == {"feed": "synthetic-0", "row": 6}
    assert place_text(place) == "synthetic-0, row 7 of its part of the batch"
