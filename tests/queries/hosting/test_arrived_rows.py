"""Rows between the scan and the first stage."""

from __future__ import annotations

import pyarrow as pa
from kit.continuous import EPOCH, TRADE
from kit.hosting import frame, scanned

from upstream.queries.deltas.streams import SEQUENCE, TOMBSTONE
from upstream.queries.hosting.arrived_rows import as_sent, in_order, oldest_arrival, rows_of

ROWS = frame(TRADE, [("a", 1.0, 1, EPOCH), ("b", 2.0, 2, EPOCH), ("c", 3.0, 3, EPOCH)])


def test_rows_keep_their_columns_order_and_tombstones() -> None:
    sent = as_sent(scanned(TRADE, ROWS, [5, 4, 5], sequences=[2, 9, 1], deleted=[False, True, False]), TRADE.schema)
    ordered = in_order([sent.slice(2), sent.slice(0, 2)])
    assert ordered.equals(in_order([sent]))
    rows = rows_of(ordered)
    assert rows.columns == [*TRADE.schema.names, SEQUENCE, TOMBSTONE]
    assert rows.select("sym", SEQUENCE, TOMBSTONE).rows() == [("b", 9, True), ("c", 1, False), ("a", 2, False)]


def test_feeds_decide_where_arrival_and_sequence_are_equal() -> None:
    one, two = (
        as_sent(scanned(TRADE, ROWS[at : at + 1], [5], feed=name), TRADE.schema) for at, name in ((0, "z"), (1, "y"))
    )
    assert in_order([one, two]).column("sym").to_pylist() == ["b", "a"]


def test_the_oldest_arrival() -> None:
    sent = as_sent(scanned(TRADE, ROWS, [7, 4, 5]), TRADE.schema)
    assert oldest_arrival(sent) == 4
    assert oldest_arrival(sent.slice(0, 0)) is None
    assert sent.schema.field(SEQUENCE).type == pa.int64()
