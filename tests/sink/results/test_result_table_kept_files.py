"""Rows of small files, which stay in the process that wrote them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from upstream.sink.results import result_table as kept_module
from upstream.sink.results.result_table import KeptFiles, ResultTable, layout_of, target_of
from upstream.sink.table.files import DataFiles


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


def test_together_they_are_few(table):
    kept, _ = files_of(table)
    half = kept_module._MOST_ROWS // 2 + 1
    paths = [kept.stage(rows_of(kept, half), 0, half).path for _ in range(2)]
    assert kept.read_rows(paths[:1]).num_rows == half
    Path(table.location, paths[1]).unlink()
    with pytest.raises(FileNotFoundError):
        kept.open(paths)


def test_those_wanted_last_stay_when_there_is_no_more_room(table, monkeypatch):
    kept_module._kept = kept_module._RowCache()
    kept, _ = files_of(table)
    rows = rows_of(kept, 100)
    monkeypatch.setattr(kept_module, "_MOST_BYTES", 5 * rows.nbytes // 2)
    first, second = (kept.stage(rows, 0, 100).path for _ in range(2))
    kept.open([first])
    third = kept.stage(rows, 0, 100).path
    assert [kept_module._kept.get(path) is not None for path in (first, second, third)] == [True, False, True]


def test_a_few_rows_of_many_do_not_keep_the_others(table):
    kept, _ = files_of(table)
    many = rows_of(kept, 100_000)
    for few in (many.slice(7, 3), pa.concat_tables([many.slice(7, 3), many.slice(50, 3)])):
        found = kept_module._kept.get(kept.stage(few, 0, few.num_rows).path)
        assert found is not None
        assert found.equals(few)
        assert found.get_total_buffer_size() < 1_000
        assert found.column("k").num_chunks == 1
