"""A query's table as tasks write it: its layout, its staged files, and the cache of their rows."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from kit.invalid_text import not_utf_8
from kit.result_tables import COLUMNS, result_rows_of

from upstream.conf.errors import MalformedRowError, OptionError, SchemaError, TableError
from upstream.core.rows.key import Key
from upstream.sink.latest_table import LatestTable
from upstream.sink.merge import engines
from upstream.sink.results import result_table as kept_module
from upstream.sink.results.result_table import KeptFiles, ResultTable, SeenTable, layout_of, stage, target_of
from upstream.sink.table.files import DataFiles


def test_options_of_the_sink_reach_the_table(hosted):
    table = hosted.table("a", options=(("durability", "power"), ("storage.region", "eu")))
    target = target_of(table)
    assert (target.is_durable, target.storage, target.options.retention_versions) == (True, {"region": "eu"}, 1_000)
    kept = hosted.table("a", options=(("retentionVersions", "700"),))
    assert target_of(kept).options.retention_versions == 700
    with pytest.raises(OptionError, match="durabilty"):
        target_of(hosted.table("a", options=(("durabilty", "power"),)))


def test_key_kind_and_buckets_make_the_layout(hosted):
    layout = layout_of(hosted.table("a", buckets=5))
    assert (layout.key, layout.time, layout.buckets, layout.history.count) == (("k",), None, 5, 1)
    feed = layout_of(hosted.table("a", key=(), history="all", buckets=5))
    assert (feed.key, feed.buckets, feed.history.count) == ((), 1, None)
    with pytest.raises(SchemaError, match="'x'"):
        layout_of(hosted.table("a", key=Key(("x",))))


def test_what_is_not_committed_is_removed(hosted):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    before = set(Path(a.location).rglob("*.parquet"))
    results = hosted.results([a], {"a": [(2, "y")]}, {"a": [1]})
    assert set(Path(a.location).rglob("*.parquet")) > before
    hosted.tables.discard([a], results)
    assert set(Path(a.location).rglob("*.parquet")) == before


def test_files_with_other_numbers_of_columns_than_the_table_has_are_refused(hosted):
    a = hosted.table("a", schema=COLUMNS.append(pa.field("a b", pa.int64())))
    hosted.batch(0, [a], {"a": [(1, "x", 1)]})
    seen = hosted.tables.look([a]).tables["a"]
    assert seen.ids is not None
    others = {path: number + 10 for path, number in seen.ids.items()}
    staged = hosted.staged(a, SeenTable(seen.snapshot, others), [(2, "y", 2)])
    with pytest.raises(TableError, match=r"the columns of the table at .* were changed by another writer"):
        hosted.tables.commit([a], {"a": staged}, 1, None)
    assert hosted.rows(a) == [(1, "x", 1)]
    assert hosted.batch(1, [a], {"a": [(2, "y", 2)]}).keys() == {"a"}
    assert LatestTable(a.location).check().healthy


def test_rows_without_a_key_or_with_too_high_a_number_are_refused(hosted):
    a = hosted.table("a")
    seen = hosted.tables.look([a]).tables["a"]
    with pytest.raises(MalformedRowError, match="1 of 2 rows have a null in the key column 'k'"):
        hosted.staged(a, seen, [(1, "x"), (None, "y")])
    came = result_rows_of(a, [(1, "x")])
    highest = (1 << 62) - 1
    stage(a, seen, dataclasses.replace(came, seq=np.array([highest])))
    with pytest.raises(MalformedRowError, match="a row is numbered"):
        stage(a, seen, dataclasses.replace(came, seq=np.array([highest + 1])))


def test_text_that_is_not_utf_8_is_refused(hosted):
    a = hosted.table("a")
    came = result_rows_of(a, [(1, "x"), (2, "y")])
    name = came.rows.schema.names[1]
    rows = pa.Table.from_batches([not_utf_8(came.rows.to_batches()[0], name, at=[1])])
    with pytest.raises(MalformedRowError, match="1 of 2 rows of 'a' have text that is not UTF-8"):
        stage(a, hosted.tables.look([a]).tables["a"], dataclasses.replace(came, rows=rows))


def test_of_two_shards_rows_with_one_key_the_greater_number_stays(hosted):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "old")]})
    seen = hosted.tables.look([a]).tables["a"]
    came = result_rows_of(a, [(1, "new"), (1, None)], deleted=1)
    for numbers, rows in (([7, 6], [(1, "new")]), ([8, 9], [])):
        staged = [stage(a, seen, dataclasses.replace(came, seq=np.array(numbers)))]
        hosted.tables.commit([a], {"a": staged}, numbers[0], None)
        assert hosted.rows(a) == rows
        seen = hosted.tables.look([a]).tables["a"]


@pytest.mark.parametrize("held", [3, 4])
def test_a_bucket_is_the_same_whether_it_is_read_at_once_or_not(hosted, monkeypatch, held):
    monkeypatch.setattr(engines, "_FEW_ROWS", 3)
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(key, "old") for key in range(held)]})
    hosted.restart()  # the rows are read from the file
    hosted.batch(1, [a], {"a": [(1, "new"), (9, "new")]}, {"a": [0]})
    assert hosted.rows(a) == [(1, "new"), *[(key, "old") for key in range(2, held)], (9, "new")]


def files_of(table: ResultTable) -> tuple[KeptFiles, DataFiles]:
    """The files of a table, with the rows that this process has and without them."""
    target, schema = target_of(table), layout_of(table).file_schema()
    return KeptFiles(target, schema), DataFiles(target, schema)


def rows_of(files: DataFiles, count: int, first: int = 0) -> pa.Table:
    keys = np.arange(first, first + count)
    return pa.table([keys, [f"v{key}" for key in keys], keys], schema=files.schema)


@pytest.fixture
def table(hosted):
    return hosted.table("a")


def test_rows_are_those_that_the_files_have(table):
    kept, read = files_of(table)
    paths = [kept.stage(rows_of(kept, 3, first), 0, 3).path for first in (0, 5)]
    for columns in (None, ["k"], ["_upstream_seq", "k"]):
        assert kept.read_rows(paths, columns=columns).equals(read.read_rows(paths, columns=columns))
        assert kept.read_rows(paths[::-1], columns=columns).equals(read.read_rows(paths[::-1], columns=columns))
    assert kept.open(paths).rows == read.open(paths).rows == 6


def test_they_are_read_once_more_only_where_they_must_be(table):
    kept, _ = files_of(table)
    known, many = (kept.stage(rows_of(kept, count), 0, count).path for count in (3, kept_module._MOST_ROWS + 1))
    dead = np.array([True, False, False])
    assert kept.read_rows([known], [dead]).column("k").to_pylist() == [1, 2]
    for path in (known, many):
        Path(table.location, path).unlink()
    assert kept.read_rows([known]).num_rows == 3
    for paths, vectors in (([many], []), ([known, many], []), ([known], [dead])):
        with pytest.raises(FileNotFoundError):
            kept.read_rows(paths, vectors)
    kept_module._kept = kept_module._RowCache()
    with pytest.raises(FileNotFoundError):
        kept.read_rows([known])


def test_a_few_rows_of_many_do_not_keep_the_others(table):
    kept, _ = files_of(table)
    many = rows_of(kept, 100_000)
    for few in (many.slice(7, 3), pa.concat_tables([many.slice(7, 3), many.slice(50, 3)])):
        found = kept_module._kept.get(kept.stage(few, 0, few.num_rows).path)
        assert found is not None
        assert found.equals(few)
        assert found.get_total_buffer_size() < 1_000
        assert found.column("k").num_chunks == 1
