"""The scan: each row to the shard that needs it, bounds to all."""

import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import EPOCH, TRADE, rows_of_streams
from kit.hosting import Versions, frame, scanned

from upstream.core.rows.frames import from_frame
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL, beginning
from upstream.expressions.nodes import Field
from upstream.expressions.types import call
from upstream.hosting import host_plan
from upstream.hosting.host_plan import HostPlans
from upstream.hosting.messages import Command
from upstream.hosting.placement.placement import Fragment, Placement, Route
from upstream.hosting.scan import ScanStep, in_order

TEXT = "SELECT sym, MAX(px) AS hi FROM trade [RANGE 10 MINUTES] GROUP BY sym"
SYM = Field("sym", pa.string())
N = Field("n", pa.int64())
START_US = int(EPOCH.timestamp() * 1_000_000)


def scan(table, by=(SYM,), slots=(70, 80, 90)):
    def placed(plan):
        return Placement((Fragment(plan, (Route("trade", by),), None),), None)

    with patch.object(host_plan, "placed", placed):
        versions = Versions({1: {"q": (1, TEXT)}})
        step = ScanStep(lambda: Command(0, 1), HostPlans(versions, slots), "trade")
        return [row for batch in step(iter(table.to_batches())) for row in batch.to_pylist()]


@given(rows=rows_of_streams(), by=st.sampled_from([(SYM,), (SYM, N), ()]))
def test_each_row_goes_to_one_shard_with_its_equals(rows, by):
    came = rows["trade"]
    found = scan(scanned(TRADE, came, list(range(1, came.height + 1)), {"f": 5}), by)
    frames = [(each["slot"], from_frame(each["frame"])) for each in found if each["frame"] is not None]
    assert len({slot for slot, _ in frames}) == len(frames)
    slots: dict[tuple[Any, ...], int] = {}
    for slot, table in frames:
        for row in table.select([each.name for each in by if isinstance(each, Field)]).to_pylist():
            assert slots.setdefault(tuple(row.values()), slot) == slot
    if frames:
        together = in_order([table for _, table in frames]).select(TRADE.schema.names)
        assert together.equals(came.to_arrow().cast(TRADE.schema))


def test_every_shard_hears_of_bounds_and_of_the_newest_arrival():
    rows = frame(TRADE, [("a", 1.0, 1, EPOCH)])
    found = scan(scanned(TRADE, rows, [7], {"f": START_US, "g": None}))
    controls = [json.loads(each["control"]) for each in found if each["frame"] is None]
    assert [each["slot"] for each in found if each["frame"] is None] == [70, 80, 90]
    assert controls[0] == controls[1] == controls[2]
    assert controls[0] == {
        "kind": "scan",
        "stream": "trade",
        "bounds": {"f": START_US, "g": AFTER_ALL},
        "arrival": 7,
        "newest": START_US,
    }


def test_a_feed_of_which_nothing_is_known_holds_back():
    table = scanned(TRADE, frame(TRADE, []), [], {"f": beginning(TRADE.schema.field("t").type).value})
    assert json.loads(scan(table)[0]["control"])["bounds"] == {"f": BEFORE_ALL}


def test_punctuation_of_a_single_key_is_no_bound():
    table = scanned(TRADE, frame(TRADE, []), [], {"f": START_US})
    single = table.set_column(0, "sym", pa.array(["a"]))
    assert json.loads(scan(single)[0]["control"])["bounds"] == {}


def test_without_rows_nothing_is_sent():
    assert scan(scanned(TRADE, frame(TRADE, []), [])) == []


def test_rows_that_cannot_be_divided_are_no_reason_for_the_batch_to_fail():
    rows = frame(TRADE, [("a", 1.0, 0, EPOCH)])
    found = scan(scanned(TRADE, rows, [7]), (call("divide", [Field("px", pa.float64()), N]),))
    kinds = [json.loads(each["control"])["kind"] for each in found]
    assert kinds == ["unroutable"] * 3 + ["scan"] * 3
    assert "divi" in json.loads(found[0]["control"])["reason"].lower()
