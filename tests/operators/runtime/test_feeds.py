import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.core.watermark.bounds import BEFORE_ALL
from upstream.operators.runtime.feeds import FeedBounds, key_mask, punctuation_rows, without_single_keys

SCHEMA = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def rows(*numbers):
    column = pa.array(numbers, pa.int64())
    system = system_array(source="f", seq=column.to_numpy(), arrival_us=column.to_numpy())
    return pa.table([column, column, column, system], schema=SCHEMA)


def promises(*bounds):
    k, r, t = (pa.array(each, pa.int64()) for each in zip(*bounds, strict=True))
    return punctuation_rows(SCHEMA, ["f"] * len(bounds), 0, k=k, r=r, t=t).cast(SCHEMA)


def test_punctuation_with_any_part_of_the_key_is_of_single_keys():
    found = promises((1, 2, 5), (1, None, 5), (None, 2, 5), (None, None, 5))
    assert key_mask(found, ["k", "r"]).tolist() == [True, True, True, False]
    assert key_mask(found, ["k"]).tolist() == [True, True, False, False]
    assert key_mask(found, []).tolist() == [False] * 4


def test_a_table_with_another_key_gets_all_rows_and_punctuation_of_all_keys_alone():
    table = pa.concat_tables([rows(1, 2), promises((1, None, 5), (None, 2, 6), (None, None, 3))])
    left = pa.Table.from_batches(
        list(without_single_keys(["k", "r"])(iter([*table.combine_chunks().to_batches(), *rows(4).to_batches()])))
    )
    assert left.column("t").to_pylist() == [1, 2, 3, 4]
    assert [each["punctuation"] for each in left.column(SYSTEM).to_pylist()] == [False, False, True, False]


def test_the_least_bound_counts_and_each_is_sent_on_once_up_to_a_limit():
    feeds = FeedBounds()
    assert feeds.low_watermark is None
    feeds.hear(["a", "b", "a"], [9, 4, 7])
    assert (dict(feeds.bounds), feeds.low_watermark) == ({"a": 9, "b": 4}, 4)
    assert feeds.due(6) == [("a", 6), ("b", 4)]
    again = FeedBounds(feeds.to_json())
    assert again.due(6) == []
    assert again.due(8) == [("a", 8)]
    again.hear(["c"], [BEFORE_ALL])
    assert again.low_watermark is None
