"""Offsets without the feeds at rest: nothing of them is lost, and they do not grow with them."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.journal import through_json
from kit.memory_connector import MemoryConnector
from kit.waiting import wait_for
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from upstream.conf.errors import CheckpointError
from upstream.core.feedback import offsets as kept_feeds
from upstream.core.feedback.offsets import (
    OffsetBook,
    ResumePoint,
    SourceCounts,
    counts_in,
    journaled_counts,
    journaled_offsets,
    resume_point,
    whole_offset,
)
from upstream.core.rows.key import Key
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.core.watermark.policies import FeedProgress, Policy
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.options import SourceOptions
from upstream.datasource.planner import BatchPlanner, Offset
from upstream.datasource.schema import leaving_schema, shape_of
from upstream.datasource.spark_reader import UpstreamStreamReader
from upstream.storage.folder import TableFolder

ROWS = from_arrow_schema(pa.schema([("k", pa.int64()), ("t", pa.int64()), (SYSTEM, SYSTEM_TYPE)]))


class Query:
    """A source of files alone, with a journal as Spark's."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        (folder / "c" / "offsets").mkdir(parents=True)
        self.given = {
            "connector": "files", "path": str(folder / "in"), "feeds": "file", "fileFormat": "csv",
            "key": "k", "eventTime": "t", "timeFormat": "epoch_us", "watermark": "ordered", "confirmations": "1",
            "checkpointLocation": str(folder / "c"), **options,
        }  # fmt: skip
        self.journal: list[dict[str, Any]] = []
        self.reader = self.made()

    def made(self) -> UpstreamStreamReader:
        return UpstreamStreamReader(self.given, ROWS)

    def start(self, number: int) -> dict[str, Any]:
        return self.journal[number - 1] if number else self.reader.initialOffset()

    def batch(self) -> dict[str, Any]:
        start = self.start(len(self.journal))
        end = through_json(self.reader.latestOffset(start, ReadAllAvailable()))
        if end != start:
            lines = ["v1", "{}", json.dumps(end)]
            (self.folder / "c" / "offsets" / str(len(self.journal))).write_text("\n".join(lines))
            self.journal.append(end)
            if "position" in start:
                self.reader.commit(start)
        return end

    def write(self, name: str, *times: int) -> None:
        with open(self.folder / "in" / name, "a", encoding="utf-8") as file:
            if not file.tell():
                file.write("k,t\n")
            file.writelines(f"{time % 3},{time}\n" for time in times)

    def rows(self, number: int, reader: UpstreamStreamReader) -> list[Any]:
        parts = reader.partitions(self.start(number), self.journal[number])
        return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]

    def whole(self) -> Offset:
        return whole_offset(self.journal[-1], TableFolder(str(self.folder / "c")))


@pytest.mark.parametrize("idle", [{}, {"idle": "advance", "idleAfter": "1 ms"}], ids=["wait", "advance"])
def test_an_offset_does_not_grow_with_files_that_are_finished(tmp_path, idle):
    query, sizes, number = Query(tmp_path, **idle), list[int](), 0
    for batch in range(100):
        for _ in range(10):
            number += 1
            query.write(f"{number:04}.csv", 1_000_000 + number)
        query.write("live.csv", 1_000_000 + number)
        sizes.append(len(json.dumps(query.batch())))
        if batch in (30, 60):
            query.reader = query.made()
    assert max(sizes[80:]) < 1.1 * max(sizes[:20])
    for number in (98, 99):
        assert query.rows(number, query.made()) == query.rows(number, query.reader)
    assert len(query.whole()["progress"]) == len(query.whole()["heard"]) == 1001
    counts = journaled_counts(TableFolder(str(tmp_path / "c")), 99)
    assert counts is not None
    assert counts.received == 1100
    query.write("0001.csv", 5_000_000)
    # With so many files a slow pass over them runs in the background, and a file that had long been at rest is seen by
    # the next one.
    wait_for(lambda: query.batch()["batch"] >= 101)
    assert query.whole()["progress"][str(tmp_path / "in" / "0001.csv")]["received"] == 2


def test_a_list_without_its_checkpoint_is_an_error_in_words(tmp_path):
    query = Query(tmp_path)
    for number in range(100):
        query.write(f"{number:04}.csv", 1_000_000 + number)
    query.batch()
    query.write("live.csv", 2_000_000)
    end = query.batch()
    assert end["version"] == 2
    with pytest.raises(CheckpointError, match="set the option checkpointLocation"):
        OffsetBook(None).whole(end)
    (path,) = (tmp_path / "c" / "upstream-feeds").iterdir()
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        query.made().latestOffset(end, ReadAllAvailable())


SCHEMA = pa.schema([("k", pa.int64()), ("us", pa.int64())])
STEP = st.tuples(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=3),  # rows of feeds, how far on in time
    st.integers(0, 3),  # seconds
    st.sampled_from([None, 1, 2]),  # a limit
    st.sampled_from(["on", "on", "restart", "dies", "end"]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(STEP, max_size=12),
    st.sampled_from(["ordered", "arrival", "displaced"]),
    st.sampled_from(["wait", "advance"]),
    st.sampled_from([0, 1, 3]),
)
def test_what_is_kept_is_what_was_planned(steps, progress, idle, others):
    options = SourceOptions(
        key=Key(("k",)), time="at" if progress == "arrival" else "us", progress=progress,
        time_format=None if progress == "arrival" else "epoch_us",
        confirmations=1, progress_displacement=1, idle=idle, idle_after_us=2,
    )  # fmt: skip
    tables: dict[str, pa.Table] = {}
    connector = MemoryConnector(tables)
    connector.tables["f0"] = SCHEMA.empty_table()
    shape = shape_of(leaving_schema(SCHEMA, options), options)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_feeds, "_OTHERS", others)
        patch.setattr(kept_feeds, "_SLACK", 0)
        patch.setattr(kept_feeds, "_STALE", 2)
        checkpoint = TableFolder(folder)
        book, journal, now = OffsetBook(checkpoint), [BatchPlanner.initial()], 100
        for rows, seconds, limit, what in steps:
            now += seconds
            for feed, on in rows:
                name = f"f{feed}"
                more = pa.table([[feed], [now + on]], schema=SCHEMA)
                connector.tables[name] = pa.concat_tables([connector.tables.get(name, SCHEMA.empty_table()), more])
            if what == "end":
                connector.ended = frozenset(connector.tables)
            if what == "restart":
                book = OffsetBook(checkpoint)
            planner = BatchPlanner(connector, options, shape, clock=lambda at=now: at, new_id=lambda: "q")
            before = book.whole(journal[-1])
            planned = planner.plan(before, Limit(rows=limit))
            if planned is before:
                continue
            kept = through_json(book.kept(journal[-1], planned))
            assert book.whole(kept) == through_json(planned)
            assert OffsetBook(checkpoint).whole(kept) == through_json(planned)
            if what == "dies":  # before this was journaled
                book = OffsetBook(checkpoint)
                continue
            book.forget(journal[-1])
            journal.append(kept)


def test_each_source_has_its_offset_whatever_form_that_has(tmp_path):
    (tmp_path / "offsets").mkdir()
    lines = ["v1", '{"batchWatermarkMs":0}', '{"progress":{}}', "-", "17", "at the end", ""]
    (tmp_path / "offsets" / "4").write_text("\n".join(lines))
    assert journaled_offsets(TableFolder(str(tmp_path)), 4) == [{"progress": {}}, 17, "at the end"]
    with pytest.raises(FileNotFoundError):
        journaled_offsets(TableFolder(str(tmp_path)), 5)


def test_counts_of_several_sources_add_up_and_are_none_where_one_does_not_count(tmp_path):
    def offset(received: int, *, looked: bool = True) -> dict[str, Any]:
        return {"looked": looked, "progress": {"f": {"received": received, "late": 1, "late_idle": 0, "suspects": 2}}}

    assert counts_in([offset(3), offset(4), {"tick": 9}]) == SourceCounts(7, 2, 0, 4)
    assert counts_in([offset(3), offset(4, looked=False)]) is None
    assert counts_in([{"tick": 9}]) is None
    assert counts_in([offset(3), {"partition": 1}]) is None
    assert journaled_counts(TableFolder(str(tmp_path)), 0) is None
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n-\n" + json.dumps(offset(5)))
    assert journaled_counts(TableFolder(str(tmp_path)), 0) == SourceCounts(5, 1, 0, 2)
    (tmp_path / "offsets" / "1").write_text('v1\n{}\n{"half')
    assert journaled_counts(TableFolder(str(tmp_path)), 1) is None


def test_a_hint_counts_the_last_rows_that_no_row_confirms_yet():
    far = FeedProgress(Policy("bounded"))
    far.observe(np.arange(7) * 10**13)
    ended = FeedProgress(Policy("bounded"))
    ended.observe(np.array([1, 2]))
    ended.close_batch(3)
    ended.close()
    offset = {"looked": True, "progress": {"far": far.snapshot(), "ended": ended.snapshot()}}
    counts = counts_in([offset])
    assert counts == SourceCounts(9, 0, 0, 6, held=4)
    assert counts.hint.startswith("The last 4 rows are suspect: ")
    assert SourceCounts(8, 0, 0, 352).hint == "", "an outlier among others holds nothing back"


def test_a_query_resumes_after_its_last_complete_batch(tmp_path):
    def note(folder: str, batch: int, content: str = "") -> int:
        path = tmp_path / folder / str(batch)
        path.parent.mkdir(exist_ok=True)
        path.write_text("v1\n{}\n" + content)
        return path.stat().st_mtime_ns // 1000

    def rows(received: int) -> str:
        counts = {"received": received, "late": 0, "late_idle": 0, "suspects": 0}
        return json.dumps({"looked": True, "progress": {"f": counts}}) + "\n" + json.dumps({"tick": 3})

    checkpoint = TableFolder(str(tmp_path))
    assert resume_point(checkpoint) is None
    note("offsets", 9, rows(7))
    assert resume_point(checkpoint) == ResumePoint(None, 0, None, interrupted=True)
    at = note("commits", 9)
    (tmp_path / "commits" / ".9.crc").touch()
    assert resume_point(checkpoint) == ResumePoint(9, at, 7, interrupted=False)
    note("offsets", 10, rows(11))
    assert resume_point(checkpoint) == ResumePoint(9, at, 7, interrupted=True)
