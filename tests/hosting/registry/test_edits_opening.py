import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest
from kit.continuous import BUSES, TRADE
from kit.failures import misused, unfit
from kit.registries import COUNTS, FAST, OF_FAST, register

from upstream.conf.errors import CheckpointError
from upstream.hosting.registry.changes import Change
from upstream.hosting.registry.edits import SHARDS, define_stream, opened, record
from upstream.hosting.registry.journal import Journal


def test_a_checkpoint_begins_once(tmp_path):
    checkpoint = str(tmp_path / "cp")
    misused("'to' is missing", opened, checkpoint, None, None)
    first = opened(checkpoint, "/lake", None)
    assert (first.to, first.shards) == ("/lake", SHARDS)
    for to, shards in ((None, None), ("/lake", SHARDS)):
        assert opened(checkpoint, to, shards).nonce == first.nonce
    misused("begun with .*/lake", opened, checkpoint, "/sea", None)
    misused(f"begun with {SHARDS}", opened, checkpoint, None, SHARDS + 1)
    assert opened(str(tmp_path / "other"), "/lake", 3).shards == 3


def test_streams_are_added_and_defined_otherwise_before_the_job_runs(tmp_path):
    checkpoint = str(tmp_path / "cp")
    opened(checkpoint, "/lake", None)
    define_stream(checkpoint, BUSES)
    define_stream(checkpoint, TRADE)
    longer = dataclasses.replace(BUSES, schema=BUSES.schema.append(pa.field("more", pa.int32())))
    assert define_stream(checkpoint, longer).stream("buses") == longer
    assert [each.name for each in Journal(checkpoint).settings().streams] == ["trade", "buses"]
    assert register(checkpoint, "q", "SELECT MAX(more) AS m FROM LATEST(buses)").active.keys() == {"q"}


def test_a_definition_that_queries_do_not_fit_is_refused(checkpoint):
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "q", OF_FAST)
    shorter = dataclasses.replace(BUSES, schema=BUSES.schema.remove(BUSES.schema.get_field_index("speed")))
    misused(r"query 'q' does not fit the new definition of 'buses': .*speed", define_stream, checkpoint, shorter)
    assert Journal(checkpoint).settings().stream("buses") == BUSES
    record(checkpoint, Change("deactivate", "q"))
    assert define_stream(checkpoint, shorter).stream("buses") == shorter


def test_names_of_streams_are_words_that_nothing_else_has(checkpoint):
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "q", COUNTS)
    for name, part in (("Q", "'q' already"), ("FAST", "'fast' already"), ("Trade", "taken"), ("a/b", "cannot name")):
        misused(part, define_stream, checkpoint, dataclasses.replace(TRADE, name=name))
    unfit("no column", define_stream, checkpoint, dataclasses.replace(TRADE, name="t2", event_time="when"))


def test_streams_are_fixed_once_the_job_has_run(checkpoint):
    (Path(checkpoint) / "offsets").mkdir()
    (Path(checkpoint) / "offsets" / "0").write_text("v1")
    assert define_stream(checkpoint, TRADE).stream("trade") == TRADE
    with pytest.raises(CheckpointError, match="fixed once"):
        define_stream(checkpoint, dataclasses.replace(TRADE, key=("sym",)))
