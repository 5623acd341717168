"""`upstream why`, as it prints."""

import json

import pytest
from kit.sink import Sink

from .in_process import done, refused

UNLIMITED = ("--seconds", "inf")


@pytest.fixture
def sink(tmp_path):
    sink = Sink(tmp_path, options={"key": "k", "eventTime": "t", "buckets": "2"})
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 11, "b")])])
    sink.batch(1, [sink.rows([(1, 20, "c")], seq=5)])
    return sink


def test_a_row_and_its_earlier_version(sink):
    first, sentence, *lines = done("why", sink.path, *UNLIMITED, "1").splitlines()
    assert first == "k=1: present"
    assert sentence == "Batch 1 committed the row in version 2, at 2023-11-14 22:13:20.000 UTC."
    assert "row: k=1, t=20, v=c" in lines
    assert any(line.startswith("earlier: written in version 1, batch 0") and "v=a" in line for line in lines)
    assert lines[-2] == "The row's place in the input is unknown: the checkpoint has no batch."


def test_as_json_and_a_key_that_is_not_there(sink):
    found = json.loads(done("why", sink.path, *UNLIMITED, "k=2", "--json"))
    assert (found["verdict"], found["row"]["v"], found["version"]) == ("present", "b", 2)
    assert done("why", sink.path, *UNLIMITED, "3").splitlines()[0] == "k=3: unknown"


def test_a_broker_is_read_up_to_an_offset(sink):
    offset = {
        "id": "1", "connector": "kafka", "schema": "k BIGINT", "position": {"at": {"prices-0": 12}}, "progress": {},
        "ranges": [], "first_seq": 0, "seq": 12, "now_us": 0,
    }  # fmt: skip
    (sink.checkpoint / "offsets").mkdir()
    (sink.checkpoint / "offsets" / "0").write_text("\n".join(["v1", "{}", json.dumps(offset)]))
    lines = done("why", sink.path, *UNLIMITED, "3").splitlines()
    assert lines[1] == "The search found no row of the key, and was not complete."
    assert lines[2] == "read: prices-0 up to offset 12"


def test_a_key_that_does_not_fit(sink):
    assert "'three' is not a value of the key column 'k'" in refused("why", sink.path, "three")
