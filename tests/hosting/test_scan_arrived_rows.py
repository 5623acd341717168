import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import EPOCH, TRADE
from kit.hosting import frame, scanned

from upstream.hosting.scan import as_sent, in_order, oldest_arrival, rows_of
from upstream.operators.relations.streams import SEQUENCE, TOMBSTONE

ROWS = frame(TRADE, [("a", 1.0, 1, EPOCH), ("b", 2.0, 2, EPOCH), ("c", 3.0, 3, EPOCH)])


def test_rows_keep_their_columns_order_and_tombstones():
    sent = as_sent(scanned(TRADE, ROWS, [5, 4, 5], sequences=[2, 9, 1], deleted=[False, True, False]), TRADE.schema)
    ordered = in_order([sent.slice(2), sent.slice(0, 2)])
    assert ordered.equals(in_order([sent]))
    rows = rows_of(ordered)
    assert rows.columns == [*TRADE.schema.names, SEQUENCE, TOMBSTONE]
    assert rows.select("sym", SEQUENCE, TOMBSTONE).rows() == [("b", 9, True), ("c", 1, False), ("a", 2, False)]


def test_the_oldest_arrival():
    rows = in_order([as_sent(scanned(TRADE, ROWS, [7, 4, 5]), TRADE.schema)])
    assert oldest_arrival(rows) == 4
    assert oldest_arrival(rows.slice(0, 0)) is None
    assert rows.schema.field(SEQUENCE).type == pa.int64()


@pytest.mark.parametrize("deleted", [[False, False, False], [True, True, True], [False, False, True]])
@pytest.mark.parametrize("arrivals", [[5, 5, 5], [5, 5, 6]])
def test_what_is_constant_is_sent_once(arrivals, deleted):
    sent = as_sent(scanned(TRADE, ROWS, arrivals, sequences=[1, 2, 3], deleted=deleted), TRADE.schema)
    varies = [SEQUENCE] + [TOMBSTONE] * (len(set(deleted)) > 1) + ["__arrival"] * (len(set(arrivals)) > 1)
    assert sent.column_names == [*TRADE.schema.names, *varies]
    rows = in_order([sent])
    assert rows.column("__feed").to_pylist() == ["f"] * 3
    assert rows.column("__arrival").to_pylist() == arrivals
    assert rows.column(TOMBSTONE).to_pylist() == deleted
    assert in_order([rows]).equals(rows)


@given(data=st.data())
def test_order_does_not_depend_on_tasks(data):
    count = data.draw(st.integers(1, 12))
    small = st.integers(0, 2)
    arrivals = data.draw(st.lists(small, min_size=count, max_size=count))
    sequences = data.draw(st.lists(small, min_size=count, max_size=count))
    feeds = data.draw(st.lists(st.sampled_from(["a", "b"]), min_size=count, max_size=count))
    tasks = data.draw(st.lists(small, min_size=count, max_size=count))
    if data.draw(st.booleans()):
        places = sorted(range(count), key=lambda at: (arrivals[at], sequences[at], feeds[at]))
        arrivals, sequences, feeds = ([each[at] for at in places] for each in (arrivals, sequences, feeds))
    tables = []
    for task in data.draw(st.permutations(range(3))):
        ours = [at for at in range(count) if tasks[at] == task]
        named = [frame(TRADE, [(str(at), 0.0, at, EPOCH)]) for at in ours]
        parts = [
            scanned(TRADE, one, [arrivals[at]], sequences=[sequences[at]], feed=feeds[at])
            for one, at in zip(named, ours, strict=True)
        ]
        if parts:
            tables.append(as_sent(pa.concat_tables(parts), TRADE.schema))
    rows = in_order(tables)
    found = [int(name) for name in rows.column("sym").to_pylist()]
    places = [(arrivals[at], sequences[at], feeds[at]) for at in found]
    assert places == sorted(places)
    assert sorted(found) == list(range(count))
    assert rows.column("__feed").to_pylist() == [feeds[at] for at in found]
