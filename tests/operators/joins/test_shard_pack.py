import pyarrow as pa
import pytest

from upstream.conf.errors import SchemaError
from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.frames import from_frame, split_punctuation
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_field
from upstream.operators.joins.shard import join_pack, latest_pack
from upstream.operators.runtime.feeds import punctuation_rows

from .batches import table

SCHEMA = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def batches(keys, ons, times, bound=None):
    parts = [table(SCHEMA, list(zip(keys, ons, times, strict=True)))]
    if bound is not None:
        parts.append(punctuation_rows(SCHEMA, ["f"], 0, t=pa.array([bound])))
    return iter(pa.concat_tables(parts).combine_chunks().to_batches())


def sent(pack, given):
    found = {}
    for batch in pack(given):
        for slot, frame, side in zip(*(batch.column(at).to_pylist() for at in range(3)), strict=True):
            rows, punctuation = split_punctuation(from_frame(frame))
            found.setdefault(slot, []).append((side, rows.column("t").to_pylist(), punctuation.num_rows))
    return found


@pytest.mark.parametrize(("whole", "fields"), [(True, SYSTEM_TYPE.num_fields), (False, 4)])
def test_each_shard_gets_its_rows_with_what_it_takes_of_the_system_column_and_all_punctuation(whole, fields):
    ons = [1, 2, 3, None, 1]
    found = sent(join_pack(["r"], [70, 80, 90], "right", whole=whole), batches(range(5), ons, range(5), bound=9))
    assert sorted(found) == [70, 80, 90]
    assert all(len(frames) == 1 and frames[0][0] == "right" and frames[0][2] == 1 for frames in found.values())
    shards = bucket_of([pa.array(ons, pa.int64())], 3)
    for shard, slot in enumerate((70, 80, 90)):
        assert found[slot][0][1] == [at for at in range(5) if shards[at] == shard]
    alone = sent(join_pack(["r"], [70, 80, 90], "left", whole=whole), batches([1], [2], [3]))
    assert len(alone) == 1, "without punctuation only shards with rows are called"
    (batch,) = join_pack(["r"], [70], "left", whole=whole)(batches([1, 2], [2, 3], [3, 4], bound=9))
    found = from_frame(batch.column("frame")[0].as_py())
    assert found.schema.field(SYSTEM).type.num_fields == fields
    assert set(system_field(found, "source").to_pylist()) == {"left/f"}


def test_newest_rows_are_sent_without_punctuation_and_keys_that_stay_once():
    given = ([1, 1, 2], [5, 5, 5], [4, 3, 2])
    assert sent(latest_pack(["r"], [7], "left", ["k"], "t"), batches(*given, bound=9)) == {7: [("left", [4, 2], 0)]}
    assert sent(latest_pack(["r"], [7], "left"), batches(*given)) == {7: [("left", [4, 3, 2], 0)]}
    assert sent(latest_pack(["r"], [7], "left", ["k"], "t"), batches([], [], [], bound=9)) == {}
    with pytest.raises(SchemaError, match="no k"):
        sent(latest_pack(["r"], [7], "left", ["k"], "t"), batches([None], [5], [4]))
