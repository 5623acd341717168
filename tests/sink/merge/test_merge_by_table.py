"""Any arrival order, any split into batches and tasks: the same table as a plain computation."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upstream.core.rows.sort_keys import ordered
from upstream.core.watermark.bounds import beginning
from upstream.delta_format.latest_table import NOTHING_YET
from upstream.sink.merge import incoming
from upstream.sink.merge.feed_bounds import bound_values, later_bound

ENGINES = ("rewrite", "vectors")

KEYS = st.sampled_from(["a", "b", "c", "d", "", "é", "a longer key than four bytes"])
ROWS = st.lists(st.tuples(KEYS, st.integers(-3, 3)), max_size=40)
COLUMNS = pa.schema([("k", pa.string()), ("t", pa.int64()), ("payload", pa.list_(pa.int64()))])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows=ROWS, timed=st.booleans())
def test_any_order_and_any_split(make_sink: Any, data: st.DataObject, rows: list[tuple[str, int]], timed: bool) -> None:
    # seq is the order of arrival at the feed; with a time, rows may reach the sink in any other order.
    numbered = [(key, time, [seq], seq) for seq, (key, time) in enumerate(rows)]
    expected: dict[str, tuple[int, list[int]]] = {}
    for key, time, payload, _ in sorted(numbered, key=lambda row: (row[1], row[3]) if timed else row[3]):
        expected[key] = (time, payload)
    batches = _split(data, data.draw(st.permutations(numbered)) if timed else numbered)
    with tempfile.TemporaryDirectory() as folder:
        sink = make_sink(COLUMNS, time="t" if timed else "")
        sink.folder = Path(folder)
        sink.__post_init__()
        delivered = updates = 0
        for batch_id, batch in enumerate(batches):
            tasks = _split(data, data.draw(st.permutations(batch)))
            arrays = [[_rows(sink, part) for part in _split(data, task)] for task in tasks]
            summary = sink.batch(batch_id, *arrays)
            if summary is not None:
                delivered += summary.delivered
                updates += summary.updates
                assert summary.keys == sink.table().num_rows
                assert summary.updates == summary.delivered + summary.superseded
        if rows:
            assert sink.latest() == expected
            assert sink.table().num_rows == len(expected)
        assert updates == len(rows)
        assert delivered >= len(expected)


def _rows(sink: Any, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    arrival = [1_000 + row[3] for row in rows]
    return sink.rows([row[:3] for row in rows], seq=[row[3] for row in rows], arrival_us=arrival)


def _split(data: st.DataObject, rows: Any) -> list[list[Any]]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    return [list(rows[start:end]) for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def test_many_rows_are_coalesced_on_the_way(make_sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    keys, times = rng.integers(0, 50, 3000).tolist(), rng.integers(0, 1000, 3000).tolist()
    rows = [(key, time, str(seq)) for seq, (key, time) in enumerate(zip(keys, times, strict=True))]
    results = []
    for limit in (2_000_000, 100):
        monkeypatch.setattr(incoming, "_COALESCE_AT", limit)
        sink = make_sink(query_id=f"limit-{limit}")
        sink.folder /= str(limit)
        sink.__post_init__()
        first_us = [1_000 + 7 * seq for seq in range(3000)]
        parts = [
            sink.rows(rows[i : i + 60], seq=i, first_arrival_us=np.array(first_us[i : i + 60]))
            for i in range(0, 3000, 60)
        ]
        summary = sink.batch(0, parts)
        results.append((sink.latest(), summary.updates, summary.delivered, summary.staleness, summary.rows))
    assert results[0] == results[1]
    assert results[0][1:3] == (3000, 50)


@given(st.lists(st.floats(allow_nan=False)))
def test_floats_are_ordered_as_numbers(values: list[float]) -> None:
    codes = ordered(pa.chunked_array([pa.array(values, pa.float64())]))
    for one, code in zip(values, codes, strict=True):
        for other, other_code in zip(values, codes, strict=True):
            assert (one < other) == (code < other_code)


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.int16(), pa.float32()])
def test_bounds_compare_as_the_times_do(kind: pa.DataType) -> None:
    numbers = [3, -400, 0, 20_000, 7]
    column = pa.chunked_array([pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)])
    bounds = bound_values(column)
    assert sorted(range(5), key=bounds.__getitem__) == np.argsort(numbers).tolist()
    assert bound_values(pa.chunked_array([pa.array([None], kind)])) == [None]


def test_a_feed_of_which_nothing_is_known_is_below_all_bounds() -> None:
    kind = pa.timestamp("us", "UTC")
    (least,) = bound_values(pa.chunked_array([pa.array([beginning(kind).as_py()], kind)]))
    assert least == NOTHING_YET
    assert later_bound(least, "2024-01-01T00:00:00.000000Z") == "2024-01-01T00:00:00.000000Z"
    assert (later_bound(5, least), later_bound(least, None), later_bound(least, least)) == (5, None, least)


def test_a_feed_that_has_ended_stays_ended() -> None:
    assert later_bound(3, 5) == 5
    assert later_bound(None, 5) is None
    assert later_bound(5, None) is None
