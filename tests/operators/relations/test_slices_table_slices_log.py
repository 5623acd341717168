"""Pages of partial aggregates: nothing is lost, and pages stay few."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.slices_table import SLICE, SliceLog
from upstream.operators.state.store import CountingStore, DictStore

ADDED = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=200), max_size=12)


def table(slices, begin=0):
    return pa.table({SLICE: pa.array(slices, pa.int64()), "x": pa.array(range(begin, begin + len(slices)), pa.int64())})


def together(tables):
    return pa.concat_tables(tables)


@given(added=ADDED, drops=st.lists(st.integers(-1, 51), max_size=12))
def test_every_row_is_there_until_its_slice_is_dropped(added, drops):
    store, log, rows, dropped = DictStore(), None, {}, -1
    for number, slices in enumerate(added):
        log = SliceLog(store, "k", {} if log is None else log.to_json())
        begin = 1000 * number
        rows.update({begin + at: each for at, each in enumerate(slices)})
        log.add(table(slices, begin), together)
        if number < len(drops):
            dropped = max(dropped, drops[number])
            log.drop(dropped)
        found = {x: each for part in log.tables() for each, x in zip(*part.to_pydict().values(), strict=True)}
        assert found.items() <= rows.items()
        assert {x for x, each in rows.items() if each > dropped} <= found.keys()
        assert len(store.values) == len(log.to_json()["pages"])
        assert log.rows == len(found)


def test_pages_are_few_and_each_row_is_written_seldom():
    store = CountingStore(inner := DictStore())
    log = SliceLog(store, "k", {})
    for number in range(256):
        log.add(table([number] * 100), together)
    assert len(inner.values) == 1
    assert store.written < 100 * 256 * 16 * 10  # 16 bytes, each some log2(256) times
    log.drop(254)
    assert log.rows == 25_600
    log.drop(255)
    assert inner.values == {}


def test_what_merges_to_nothing_leaves_no_page():
    log = SliceLog(store := DictStore(), "k", {})
    log.add(table([1]), together)
    log.add(table([1]), lambda tables: tables[0].slice(0, 0))
    assert store.values == {}
