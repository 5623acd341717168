import copy

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL
from upstream.operators.runtime.feeds import (
    ALL_FEEDS,
    FeedBounds,
    KeyBounds,
    KeyShare,
    key_mask,
    punctuation_rows,
    without_single_keys,
)
from upstream.operators.state.store import DictStore

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


KEY = ("a", "b")
KEY_SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def bounds_of(store=None, saved=0, names=KEY, **given):
    return KeyBounds(DictStore() if store is None else store, "keys", names, saved, **given)


def hear(bounds, *claims, key=KEY):
    """Claims (values of the key by name, feed, bound)."""
    values = {name: pa.array([each[0].get(name) for each in claims], KEY_SCHEMA.field(name).type) for name in "abc"}
    rows = punctuation_rows(KEY_SCHEMA, [each[1] for each in claims], 0, **values)
    return bounds.hear(rows, key, np.array([each[2] for each in claims], dtype=np.int64))


def of(bounds, *keys):
    return bounds.of([pa.array([key[0] for key in keys]), pa.array([key[1] for key in keys], pa.int64())]).tolist()


def raised(bounds, feeds, **given):
    found = bounds.raised(feeds, **given)
    if found is None:
        return None
    keys = zip(*(column.to_pylist() for column in found.keys.columns), strict=True)
    return sorted(zip(keys, found.before.tolist(), found.after.tolist(), strict=True), key=str)


A, B = {"a": "x", "b": 1}, {"a": "y", "b": 2}
KEY_A, KEY_B = ("x", 1), ("y", 2)


def test_every_feed_counts_for_a_key_and_the_feeds_own_bounds_take_over():
    bounds = bounds_of()
    assert raised(bounds, {"f": 3}) is None
    hear(bounds, (A, "f", 9), (A, "f", 8), (B, "f", 7))
    assert of(bounds, KEY_A) == [LOWEST]  # not before it is asked for what has risen
    assert raised(bounds, {"f": 1, "g": 3}) == [(KEY_A, LOWEST, 3), (KEY_B, LOWEST, 3)]
    assert of(bounds, KEY_B, ("x", 2), KEY_A) == [3, LOWEST, 3]
    assert raised(bounds, {"f": 1, "g": 8}) == [(KEY_A, 3, 8), (KEY_B, 3, 7)]
    hear(bounds, (A, "g", 20))
    assert raised(bounds, {"f": 1, "g": 8}) == [(KEY_A, 8, 9)]
    assert bounds.farthest == 9
    assert len(bounds) == 3
    assert raised(bounds, {"f": 7, "g": 8}) == []
    assert len(bounds) == 2  # that of B says no more than its feed
    assert raised(bounds, {"f": AFTER_ALL, "g": AFTER_ALL}) == [(KEY_A, 9, AFTER_ALL)]
    assert len(bounds) == 0
    assert (of(bounds, KEY_A), bounds.farthest) == ([LOWEST], LOWEST)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_a_union_each_input_has_to_promise(order):
    bounds = bounds_of(inputs=("left", "right"))
    claims = [(A, f"left/{ALL_FEEDS}", 9), (A, "right/f", 7)]
    hear(bounds, claims[order[0]])
    assert raised(bounds, {}) == []
    hear(bounds, claims[order[1]])
    assert raised(bounds, {"left/g": 1}) == [(KEY_A, LOWEST, 7)]
    assert raised(bounds, {"left/g": 1, "right/f": 8}) == [(KEY_A, 7, 8)]
    assert raised(bounds, {"left/g": 1, "right/f": 20}) == [(KEY_A, 8, 9)]
    assert raised(bounds, {"left/g": 30, "right/f": 20}) == [(KEY_A, 9, 20)]


def test_the_end_of_a_key_is_no_bound_where_it_always_has_another_result():
    bounds = bounds_of()
    hear(bounds, (A, ALL_FEEDS, 9))
    raised(bounds, {})
    hear(bounds, (A, ALL_FEEDS, AFTER_ALL))
    assert raised(copy.copy(bounds), {"f": 3}, endless=True) == []
    assert raised(bounds, {"f": 3}) == [(KEY_A, 9, AFTER_ALL)]


def test_a_floor_above_the_feeds_bounds_forgets_and_one_below_keeps():
    for floor, left in ((8, 1), (9, 0), (10, 0)):
        bounds = bounds_of()
        hear(bounds, (A, "f", 9))
        raised(bounds, {"f": 1})
        raised(bounds, {"f": 9}, floor=floor)
        assert len(bounds) == left


def test_a_name_that_is_not_among_the_columns_makes_it_say_nothing():
    bounds = bounds_of(names=("a",))
    assert hear(bounds, (A, "f", 9), ({"a": "z"}, "f", 5), ({"b": 1}, "f", 6)) == 2
    assert raised(bounds, {"f": 1}) == [(("z",), LOWEST, 5)]


@pytest.mark.parametrize("by", [("a", "b"), ("b",)])
def test_keys_of_other_shards_are_left_out_and_those_of_several_are_not(by):
    keys = pa.table({"a": ["x"] * 8, "b": pa.array([*range(7), None], pa.int64())})
    number = bucket_of([keys.column(name).slice(0, 7) for name in by], 3)
    for shard in (KeyShare(number, 3, by) for number in range(3)):
        assert shard.determined(keys).tolist() == [True] * 7 + [False]
        assert shard.others(keys).tolist() == [*(number != shard.number), False]
        assert shard.feeds(keys, "own/1") == [ALL_FEEDS] * 7 + ["own/1"]
        bounds = bounds_of(shard=shard)
        hear(bounds, *[({"a": "x", "b": each}, "f", 9) for each in range(7)], ({"a": "x"}, "f", 5))
        assert len(bounds) == np.count_nonzero(number == shard.number) + 1
    apart = KeyShare(0, 3, ("a", "b", "c"))
    assert not apart.determined(keys).any()
    assert not apart.others(keys).any()


def test_more_is_promised_on_once_and_not_below_what_is_promised_of_all():
    bounds = bounds_of()
    hear(bounds, (A, "f", 9), (B, "f", 7))
    raised(bounds, {"f": 1})
    at = {key: n for n, key in enumerate(zip(*(each.to_pylist() for each in bounds.entries[0].columns), strict=True))}

    def due(of_a, of_b, floor):
        promises = np.zeros(2, dtype=np.int64)
        promises[at[KEY_A]], promises[at[KEY_B]] = of_a, of_b
        names = {number: key for key, number in at.items()}
        return [names[each] for each in bounds.due(promises, floor).tolist()]

    assert due(4, 4, 4) == []
    assert due(5, 4, 4) == [KEY_A]
    hear(bounds, (A, "g", 9))  # a second bound of the key changes nothing
    raised(bounds, {"f": 1, "g": 2})
    assert due(5, 5, 4) == [KEY_B]
    assert due(6, 5, 4) == [KEY_A]
    bounds.count_as_promised(pa.table({"other": ["x", "z"], "name": pa.array([1, 1], pa.int32())}), np.array([8, 8]))
    assert bounds.promised([pa.array(["x", "y", "z"]), pa.array([1, 2, 1])]).tolist() == [8, 5, LOWEST]
    assert due(8, 6, 4) == [KEY_B]
    assert due(9, 9, np.array([0, 9] if at[KEY_A] == 0 else [9, 0])) == [KEY_A]


def test_the_least_time_of_rows_that_a_key_speaks_for():
    bounds = bounds_of()
    hear(bounds, (A, "f", 9), ({"b": 1}, "f", 9), ({"a": "z"}, "f", 9))
    raised(bounds, {"f": 1})
    columns = [pa.array(["x", "x", "y"]), pa.array([1, 2, 1], pa.int32())]
    least = bounds.least(columns, np.array([5, 1, 3], dtype=np.int64)).tolist()
    keys = zip(*(each.to_pylist() for each in bounds.entries[0].columns), strict=True)
    assert dict(zip(keys, least, strict=True)) == {KEY_A: 5, (None, 1): 3, ("z", None): HIGHEST}


def test_bounds_are_written_only_where_there_are_any():
    store = DictStore()
    bounds = bounds_of(store)
    assert bounds.save() == 0
    assert store.values == {}
    hear(bounds, (A, "f", 9))
    bounds.raised({"f": 1})
    saved = bounds.save()
    again = bounds_of(store, saved)
    assert of(again, KEY_A) == [9]
    again.raised({"f": 10})
    assert again.save() == 0
    assert store.values == {}


values = st.fixed_dictionaries({"a": st.sampled_from(["x", "y", None]), "b": st.sampled_from([1, 2, None])}).filter(
    lambda key: any(value is not None for value in key.values())
)
claims = st.lists(st.tuples(values, st.sampled_from(["f", "g", ALL_FEEDS]), st.integers(0, 20)), max_size=4)
steps = st.lists(
    st.tuples(claims, st.dictionaries(st.sampled_from("fgh"), st.sampled_from([BEFORE_ALL, *range(21)]))), max_size=6
)


@given(steps)
def test_parts_of_keys_speak_for_all_keys_with_them(batches):
    """Against every claim, feed by feed: through a restart in each batch."""
    store, saved, every, feeds, known, low = DictStore(), 0, [], {}, {}, LOWEST
    for some, wholes in batches:
        bounds = bounds_of(store, saved)
        if some:
            hear(bounds, *some)
        every += some
        feeds |= {feed: max(bound, feeds.get(feed, BEFORE_ALL)) for feed, bound in wholes.items()}
        low = max(low, min(feeds.values(), default=LOWEST))
        for key in {(each["a"], each["b"]) for each, _, _ in every}:
            known[key] = max(known.get(key, LOWEST), brute_force(key, every, feeds))
        risen = bounds.raised(feeds)
        # Below what is promised of all, nothing has to be known of a key.
        for key in ((a, b) for a in "xyz" for b in (1, 2, 3)):
            assert max(*of(bounds, key), low) == max(of_pattern(key, known), low)
        if risen is not None:
            keys = zip(*(column.to_pylist() for column in risen.keys.columns), strict=True)
            for key, after in zip(keys, risen.after.tolist(), strict=True):
                assert max(after, low) == max(of_pattern(key, known), low)
            assert (risen.after > risen.before).all()
        saved = bounds.save()
    bounds = bounds_of(store, saved)
    bounds.raised(dict.fromkeys("fgh", 20))
    assert len(bounds) == 0, "the bounds of all have come as far"
    assert bounds.save() == 0
    assert store.values == {}


def covers(pattern, key):
    return all(one is None or one == two for one, two in zip(pattern, key, strict=True))


def of_pattern(key, known):
    return max((bound for other, bound in known.items() if covers(other, key)), default=LOWEST)


def brute_force(key, every, feeds):
    """The least bound of each feed for a key, or what is known of all feeds."""
    mine = [(feed, bound) for each, feed, bound in every if covers((each["a"], each["b"]), key)]
    names = {*feeds, *(feed for _, feed, _ in every)} - {ALL_FEEDS}
    least = [max([feeds.get(name, LOWEST), *(bound for feed, bound in mine if feed == name)]) for name in names]
    return max([min(least, default=LOWEST), *(bound for feed, bound in mine if feed == ALL_FEEDS)])
