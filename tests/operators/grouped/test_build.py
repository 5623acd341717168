"""What a task sends to the shards of groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from upstream.core.pushdown.ipc_frames import from_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.aggregates.functions import sum_
from upstream.operators.grouped.plan import GroupPlan
from upstream.operators.joins.latest_plan import GONE, VERSION, LatestSide
from upstream.operators.joins.pack import newest_pack

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.int64()), ("v", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def rows(schema):
    system = system_array(source="f", seq=np.arange(2), arrival_us=np.arange(2))
    values = {"k": [1, 1], "g": [2, 2], "v": [3, 5], SYSTEM: system, VERSION: [1, 2], GONE: [False, False]}
    return pa.table([pa.array(values[name], schema.field(name).type) for name in schema.names], schema=schema)


@pytest.mark.parametrize(("key", "sent"), [(("k", "g"), [5]), (("k",), [3, 5])])
def test_only_rows_whose_key_stays_in_its_group_are_coalesced(key, sent):
    plan = GroupPlan(LatestSide(("g",), "", SCHEMA, key, None, ("v",)), {"total": sum_("v")}, 1)
    columns, pack = newest_pack(plan.side, [7], "left")
    schema = SCHEMA if plan.side.stays else plan.side.versioned
    assert columns == schema.names
    (packed,) = pack(iter(rows(schema).to_batches()))
    assert packed.column("slot").to_pylist() == [7]
    assert from_frame(packed.column("frame")[0].as_buffer()).column("v").to_pylist() == sent
