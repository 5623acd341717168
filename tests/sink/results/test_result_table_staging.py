"""What tasks stage for a table."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from kit.result_tables import COLUMNS, result_rows_of

from upstream.conf.errors import MalformedRowError, TableError
from upstream.sink.latest_table import LatestTable
from upstream.sink.merge import engines
from upstream.sink.results.result_table import SeenTable, stage


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
