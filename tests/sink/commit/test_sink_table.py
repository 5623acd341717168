"""The table of one query: when a batch makes it, and when not."""

import shutil

import pytest
from kit.races import commit_between

from upstream.conf.errors import TableError


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
