"""The table of one query: when a batch makes it, and when not."""

import json
import shutil

import pytest
from kit.races import commit_between

from upstream.conf.errors import TableError
from upstream.sink.maintenance.runner import last_maintained


def test_batches_that_bring_nothing(sink):
    assert sink.batch(0, []) is None
    assert not (sink.path / "_delta_log").exists()
    sink.batch(1, [sink.rows([(1, 10, "a")]), sink.punctuation(9)])
    version = sink.version()
    assert sink.batch(2, [sink.rows([])], []) is None
    assert sink.batch(3, [sink.punctuation(9)]) is None
    assert sink.version() == version
    summary = sink.batch(4, [sink.punctuation(12)])
    assert (summary.rows, summary.low_watermark, summary.keys) == (0, 12, 1)
    assert sink.version() == version + 1
    assert sink.batch(4, [sink.rows([(2, 1, "x")])]) is None


def test_a_table_that_is_removed_during_its_first_batch_is_not_made_again(sink, monkeypatch):
    sink.batch(0, [sink.rows([(1, 10, "a")])])
    (sink.checkpoint / "upstream-sink" / "last-commits.json").unlink()
    results = sink.tasks([sink.rows([(2, 10, "b")], seq=5)])

    def removed() -> None:
        shutil.rmtree(sink.path)
        sink.path.mkdir()

    commit_between(monkeypatch, removed)
    with pytest.raises(TableError):
        sink.commit(results, 1)
    assert not (sink.path / "_delta_log").exists()


def journal(sink, batch, version, **settings):
    """The offsets of a batch, planned with the controls at a version."""
    record = {"version": version, "settings": {}, "sink": settings, "taken": []}
    lines = ["v1", "{}", json.dumps({"progress": {}}), json.dumps({"progress": {}, "control": record})]
    (sink.checkpoint / "offsets").mkdir(exist_ok=True)
    (sink.checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def test_a_batch_is_judged_by_the_target_in_its_journaled_offsets(sink):
    def target(batch):
        return sink.batch(batch, [sink.rows([(batch, 10, "a")], seq=batch)]).target

    assert target(0) is None
    journal(sink, 1, 1, target="p99 < 1 s")
    assert target(1) == "p99 < 1.0 s"
    journal(sink, 2, 2, target="none")
    assert target(2) is None


def test_maintenance_is_done_once_by_the_batch_that_took_the_request(sink):
    def maintained(batch, *rows):
        sink.batch(batch, *([sink.rows([row], seq=batch)] for row in rows))
        return last_maintained(str(sink.path))

    sink.options = {**sink.options, "maintenance": "off"}
    assert maintained(0, (1, 10, "a")) is None
    journal(sink, 1, 1, maintenance=1)
    first = maintained(1, (2, 10, "a"))
    assert first.checkpoint
    journal(sink, 2, 2, maintenance=1, target="p99 < 1 s")
    assert maintained(2, (3, 10, "a")) is None
    journal(sink, 3, 3, maintenance=3)
    assert maintained(3).version == sink.version() > first.version, "a batch without rows"
