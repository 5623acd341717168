"""A task's rows in parts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows import split as parting
from upstream.core.rows.split import some_at_once


@given(sizes=st.lists(st.integers(0, 9), max_size=12), most=st.integers(1, 20))
def test_every_row_once_in_order_and_not_too_many(sizes: list[int], most: int) -> None:
    numbers = iter(range(1000))
    batches = [pa.record_batch({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parting, "ROWS_AT_ONCE", most)
        tables = list(some_at_once(iter(batches)))
    assert [n for table in tables for n in table["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(0 < table.num_rows < most + 9 for table in tables)
    assert all(table.num_rows >= most for table in tables[:-1])


def test_long_rows_go_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parting, "_BYTES_AT_ONCE", 10_000)
    batch = pa.record_batch({"text": ["x" * 1_000] * 95 + ["y" * 50_000]})
    tables = list(some_at_once(iter([batch])))
    assert pa.concat_tables(tables).column("text").to_pylist() == batch.column("text").to_pylist()
    assert len(tables) > 5
    assert all(table.num_rows == 1 or table.nbytes < 70_000 for table in tables)
