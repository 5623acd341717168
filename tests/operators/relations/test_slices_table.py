from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.functions import count, max_, sum_
from upstream.operators.relations.slices_table import SLICE, Partials, SliceLog, SliceTable, combined
from upstream.operators.state.store import CountingStore, DictStore

SCHEMA = pa.schema({"v": pa.int64()})
ALL = Aggregates.of({"n": count(), "s": sum_("v"), "x": max_("v")}, SCHEMA)
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-5, 5), st.integers(0, 9)), max_size=12)


def partials(rows):
    state = ALL.lift(pa.table({"v": [v for _, _, v in rows]}, schema=SCHEMA), np.arange(len(rows)), len(rows))
    keys = pl.DataFrame({"k": [k for k, _, _ in rows]}, schema={"k": pl.String})
    return Partials(keys, np.array([s for _, s, _ in rows], dtype=np.int64), state)


def empty():
    return SliceTable.empty(ALL, pl.DataFrame(schema={"k": pl.String}))


@given(some=st.lists(ROWS, min_size=1, max_size=4))
def test_there_is_one_state_for_each_group_and_slice(some):
    found = combined(ALL, [partials(rows) for rows in some])
    sums, counts = Counter(), Counter()
    for key, number, value in (row for rows in some for row in rows):
        sums[key, number] += value
        counts[key, number] += 1
    lowered = ALL.lower(found.state).to_pylist()
    there = list(zip(found.keys["k"], found.slices.tolist(), strict=True))
    assert len(set(there)) == len(there)
    assert {key: (each["n"], each["s"]) for key, each in zip(there, lowered, strict=True)} == {
        key: (counts[key], sums[key]) for key in counts
    }


@given(some=st.lists(ROWS, max_size=4), last=st.integers(-6, 6), through=st.integers(-7, 8), wide=st.integers(1, 6))
def test_runs_are_the_slices_of_a_window(some, last, through, wide):
    table = empty()
    for rows in some:
        table = table.with_more([partials(rows)])
    table = table.after(last)
    groups = np.arange(table.groups)
    low, high = table.runs(groups, np.full(len(groups), through), wide)
    states = {
        key: each
        for part in ("rows@1()", "sum@1(v)", "max@1(v)")
        for key, each in [(part, table.of_runs(part, low, high))]
    }
    for group, key in enumerate(table.keys["k"]):
        mine = [v for rows in some for k, s, v in rows if k == key and s > last and through - wide < s <= through]
        assert states["rows@1()"][0][group].as_py() == len(mine)
        assert int(states["sum@1(v)"][0][group].as_py()) == sum(mine)
        assert states["max@1(v)"][0][group].as_py() == max(mine, default=None)
    inside = {(k, s) for rows in some for k, s, _ in rows if s > last and through - wide < s <= through}
    at = table.between(through - wide, through)
    assert Counter((table.keys["k"][int(table.of[each])], int(table.slices[each])) for each in at) == Counter(inside)
    assert {k for rows in some for k, s, _ in rows if s > last} == set(table.keys["k"])


@given(some=st.lists(st.tuples(ROWS, st.integers(-6, 6)), max_size=4))
def test_what_was_kept_is_in_the_order_of_what_is_read_again(some):
    kept, pages, dropped = empty(), [], -10
    for rows, last in some:
        dropped = max(dropped, last)
        kept = kept.after(dropped).with_more([partials(rows)]).after(dropped)
        pages = [combined(ALL, [*pages, partials(rows)])]
    read = empty().with_more([partials([]), *pages]).after(dropped)
    stays = [page.slices > dropped for page in pages]
    filtered = [
        Partials(page.keys.filter(which), page.slices[which], page.state.filter(pa.array(which)))
        for page, which in zip(pages, stays, strict=True)
    ]
    for again in (read, empty().with_more([partials([]), *filtered])):
        assert kept.keys.equals(again.keys)
        assert kept.of.tolist() == again.of.tolist()
        assert kept.slices.tolist() == again.slices.tolist()
        assert kept.state.equals(again.state)


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
