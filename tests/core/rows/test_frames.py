"""A task's rows in parts."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows import frames as parting
from upstream.core.rows.frames import some_at_once, split_punctuation
from upstream.core.rows.system_column import SYSTEM


@given(sizes=st.lists(st.integers(0, 9), max_size=12), most=st.integers(1, 20))
def test_every_row_once_in_order_and_not_too_many(sizes, most):
    numbers = iter(range(1000))
    batches = [pa.record_batch({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parting, "ROWS_AT_ONCE", most)
        tables = list(some_at_once(iter(batches)))
    assert [n for table in tables for n in table["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(0 < table.num_rows < most + 9 for table in tables)
    assert all(table.num_rows >= most for table in tables[:-1])


def test_long_rows_go_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(parting, "_BYTES_AT_ONCE", 10_000)
    batch = pa.record_batch({"text": ["x" * 1_000] * 95 + ["y" * 50_000]})
    tables = list(some_at_once(iter([batch])))
    assert pa.concat_tables(tables).column("text").to_pylist() == batch.column("text").to_pylist()
    assert len(tables) > 5
    assert all(table.num_rows == 1 or table.nbytes < 70_000 for table in tables)


@given(marks=st.lists(st.sampled_from([True, False, None]), max_size=8))
def test_punctuation_is_split_from_rows_wherever_it_lies(marks):
    system = pa.array([{"punctuation": mark} for mark in marks], pa.struct([("punctuation", pa.bool_())]))
    rows, punctuation = split_punctuation(pa.table({"n": pa.array(range(len(marks)), pa.int64()), SYSTEM: system}))
    assert rows.column("n").to_pylist() == [at for at, mark in enumerate(marks) if not mark]
    assert punctuation.column("n").to_pylist() == [at for at, mark in enumerate(marks) if mark]


def test_rows_before_their_punctuation_are_not_copied():
    system = pa.array([{"punctuation": at == 3} for at in range(4)], pa.struct([("punctuation", pa.bool_())]))
    table = pa.table({"n": pa.array(range(4), pa.int64()), SYSTEM: system})
    rows, _ = split_punctuation(table)
    assert rows.column("n").chunk(0).buffers()[1].address == table.column("n").chunk(0).buffers()[1].address
