"""What is to come is found when it is due, and a step reads what is due alone."""

import json

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.arrangement import DueRows
from upstream.operators.relations.zsets import TIME
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema([(TIME, pa.int64()), ("v", pa.int64())])


def rows(times, value=0):
    return pl.DataFrame({TIME: times, "v": [value] * len(times)}, schema={TIME: pl.Int64, "v": pl.Int64})


@given(st.lists(st.tuples(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 60)), max_size=40))
def test_each_row_is_taken_once_when_it_is_due(steps):
    store, saved, expected = DictStore(), {}, []
    for number, (times, until) in enumerate(steps):
        pending = DueRows(store, "p", SCHEMA, saved)
        pending.add(rows(times, number))
        expected += [(time, number) for time in times]
        assert sorted(pending.all().rows()) == sorted(expected)
        due = [row for row in expected if row[0] < until]
        assert sorted(pending.take(until).rows()) == sorted(due)
        expected = [row for row in expected if row[0] >= until]
        assert pending.rows == len(expected)
        saved = json.loads(json.dumps(pending.to_json()))
        assert sorted(page for _, page in store.values) == sorted(DueRows.pages_of(saved))


class ReadStore(DictStore):
    def __init__(self):
        super().__init__()
        self.read = 0

    def get(self, kind, page):
        self.read += 1
        return super().get(kind, page)


def test_pages_stay_few_and_a_step_reads_those_that_are_due():
    store = ReadStore()
    pending = DueRows(store, "p", SCHEMA, {})
    for step in range(2000):
        pending.add(rows(range(step * 10, step * 10 + 10)))
    assert len(store.values) < 40
    store.read = 0
    assert pending.take(50)[TIME].to_list() == list(range(50))
    assert store.read == 1
