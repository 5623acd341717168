"""What a task sends to the shards of groups."""

import pytest

from upstream.core.rows.frames import from_frame
from upstream.operators.aggregates.functions import sum_
from upstream.operators.joins.latest_plan import GONE, VERSION
from upstream.operators.joins.shard import newest_pack

from .groups_of import plan, table


@pytest.mark.parametrize(("key", "sent"), [(("k", "g"), [5]), (("k",), [3, 5])])
def test_only_rows_whose_key_stays_in_its_group_are_coalesced(key, sent):
    side = plan(key, {"total": sum_("v")}).side
    rows = table([(1, "x", 1, 3, None, False), (1, "x", 2, 5, None, False)])
    if not side.stays:
        rows = rows.append_column(VERSION, [[1, 2]]).append_column(GONE, [[False, False]])
        rows = rows.select(side.versioned.names).cast(side.versioned)
    columns, pack = newest_pack(side, [7], "left")
    assert columns == rows.column_names
    (packed,) = pack(iter(rows.combine_chunks().to_batches()))
    assert packed.column("slot").to_pylist() == [7]
    assert from_frame(packed.column("frame")[0].as_buffer()).column("v").to_pylist() == sent
