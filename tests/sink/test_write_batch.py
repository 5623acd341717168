"""Batches: ``df.write``, and writes that name themselves, without Spark."""

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kit.tables import read_letters

from upstream.conf.errors import OptionError, TableError
from upstream.sink.figures.summary import read_summaries
from upstream.sink.write_batch import batch_writer, write_batch


def write(sink: Any, *tasks: Sequence[pa.RecordBatch], **options: str) -> None:
    """What Spark does: the writer goes to the tasks, and back to the driver, in pickles."""
    given = {"path": str(sink.path), **sink.options, **options}
    writer = pickle.dumps(batch_writer(given, sink.schema, overwrite=False))
    messages = [pickle.loads(writer).write(iter(task)) for task in tasks]
    pickle.loads(writer).commit(pickle.loads(pickle.dumps(messages)))


@pytest.fixture
def plain(make_sink):
    return make_sink(system=False)


def test_a_batch_and_a_stream_write_one_table(sink):
    sink.batch(0, [sink.rows([(1, 10, "stream"), (2, 10, "stream")]), sink.punctuation(10)])
    write(sink, [sink.rows([(1, 11, "batch"), (2, 9, "batch")])], [sink.rows([(3, 1, "batch")])])
    sink.batch(1, [sink.rows([(3, 2, "stream"), (1, 12, None)], seq=5, deleted=[False, True])])
    write(sink, [sink.rows([(1, 11, "deleted")])], [sink.rows([])])
    assert sink.latest() == {2: (10, "stream"), 3: (2, "stream")}
    # What the stream has promised is the stream's to say, and it goes on where it was.
    assert [summary.low_watermark for _, summary in read_summaries(str(sink.path))] == [10, None, 10, None]


def test_a_named_write_is_applied_once(plain):
    named = {"txnAppId": "nightly", "txnVersion": "7"}
    write(plain, [plain.rows([(1, 10, "a")])], **named)
    version = DeltaTable(str(plain.path)).version()
    # By its name, whatever it brings; and by the other names.
    write(plain, [plain.rows([(1, 99, "other rows")])], **named)
    write(plain, [plain.rows([(1, 99, "other rows")])], txnAppId="nightly", txnVersion="6")
    write(plain, [plain.rows([(1, 99, "other rows")])], queryId="nightly", batchId="7")
    # Spark repeats none but the last, so a batch below it is one that the query's checkpoint has forgotten.
    with pytest.raises(TableError, match="batch 6 comes after batch 7"):
        write(plain, [plain.rows([(1, 99, "other rows")])], queryId="nightly", batchId="6")
    assert DeltaTable(str(plain.path)).version() == version
    assert plain.files() == plain.live_files()  # what the repeats staged is gone
    write(plain, [plain.rows([(1, 11, "b")])], queryId="nightly", batchId="8")
    write(plain, [plain.rows([(1, 12, "c")])], txnAppId="weekly", txnVersion="0")
    assert plain.latest() == {1: (12, "c")}


def test_a_write_without_a_name_leaves_none_in_the_log(plain):
    for _ in range(2):
        write(plain, [plain.rows([(1, 10, "a")])])
    summaries = [summary for _, summary in read_summaries(str(plain.path))]
    assert len({summary.query_id for summary in summaries}) == 2
    log = "".join(path.read_text() for path in (plain.path / "_delta_log").glob("*.json"))
    assert "upstream-batch" not in log
    assert plain.latest() == {1: (10, "a")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"txnAppId": "me"}, "given an application id alone.*txnVersion"),
        ({"batchId": "3"}, "given a number alone.*query.id"),
        ({"txnAppId": "me", "txnVersion": "3", "batchId": "4"}, "txnVersion is 3, batchId is 4"),
        ({"txnAppId": "me", "queryId": "you", "batchId": "4"}, "txnAppId is me, queryId is you"),
        ({"txnAppId": "me", "txnVersion": "x"}, "txnVersion='x' is not a whole number"),
        ({"checkpointLocation": "/c"}, "checkpointLocation is set on a batch"),
        ({"txnVerson": "3"}, "txnVerson.*txnVersion"),
        ({}, "mode is overwrite"),
    ],
)
def test_what_is_refused(plain, options, message):
    with pytest.raises(OptionError, match=message):
        batch_writer({"path": str(plain.path), **plain.options, **options}, plain.schema, overwrite="mode" in message)


def test_late_rows_of_a_write_without_a_name_are_refused(make_sink, tmp_path):
    """They would be counted as none, whatever came before: it has no low-watermarks."""
    sink = make_sink(deadLetterRows="late", deadLetters=str(tmp_path / "dead"))
    with pytest.raises(OptionError, match="deadLetterRows=late is set on a write without a name") as caught:
        write(sink, [sink.rows([(1, 10, "a")])])
    assert "txnAppId" in caught.value.hint
    # A job that names its writes has them from write to write.
    name = {"txnAppId": "nightly"}
    write(sink, [sink.rows([(1, 10, "a")]), sink.punctuation(10)], txnVersion="1", **name)
    write(sink, [sink.rows([(2, 9, "late"), (3, 10, "in time")], seq=10)], txnVersion="2", **name)
    assert [row["v"] for row in read_letters(tmp_path / "dead")] == ["late"]


def test_write_batch_reports_it_before_anything_runs(tmp_path):
    class NotReached:
        """Stands for a DataFrame that nobody looks at."""

        isStreaming = False  # noqa: N815
        sparkSession = None  # noqa: N815

    with pytest.raises(OptionError, match="deadLetterRows=late is set on a write without a name"):
        write_batch(NotReached(), tmp_path / "table", key="k", event_time="t", deadletterrows="late")  # pyright: ignore[reportArgumentType]
