"""A join's shard against each row compared with each other: every order, split, punctuation and restart."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.join_batches import BANDS, HOWS, LEFT, RIGHT, frame, meets, plan, streams
from kit.join_pairs import expected

from upstream.conf.errors import CheckpointError, MalformedRowError, SchemaError
from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.frames import from_frame, split_punctuation, to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_field
from upstream.operators.joins.as_of_shard import AsOfShard
from upstream.operators.joins.band import LEFT as LEFT_SIDE
from upstream.operators.joins.band import RIGHT as RIGHT_SIDE
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.plan import AsOfPlan, JoinPlan, JoinSide
from upstream.operators.joins.shard import JoinShard, join_pack, latest_pack
from upstream.operators.runtime.feeds import ALL_FEEDS, ENDED, punctuation_rows
from upstream.operators.state.store import DictStore

from .batches import INTEGERS, TEXTS, claimed, flat, frames, run_all, table

INTEGERS_OR_TEXTS = st.one_of(
    st.tuples(st.just(INTEGERS), claimed(streams(), [1, 2])),
    st.tuples(st.just(TEXTS), claimed(streams(texts=True), ["x", "y"])),
)


MET = [([(1, 0, 0)], None, [(1, 1, 0)], None), ([], ENDED, [], ENDED)]  # and they leave in a later batch


@example((INTEGERS, (([(1, 0, 0)], [(1, 1, 0)]), MET)), IntervalBand(9, 9), "full", None)
@given(INTEGERS_OR_TEXTS, BANDS, st.sampled_from(HOWS), st.sampled_from([None, None, "l.a >= r.b OR r.b = 3"]))
def test_each_pair_and_each_row_without_a_partner_is_given_once_and_no_promise_is_broken(case, band, how, condition):
    schemas, ((left, right), batches) = case
    join, near, store = plan(band, how, *schemas, condition=condition), meets(band), DictStore()
    found, promises, reports = run_all(JoinShard, join, batches, store)

    def met(one, two):
        return near(one, two) and (condition is None or one[2] >= two[2] or two[2] == 3)

    assert flat(found) == expected(left, right, met, how)
    promised = -(1 << 62)
    for pairs, promise in zip(found, promises, strict=True):
        for one, two in pairs:
            ends = ([left[one][1]] if one >= 0 else []) + ([right[two][1]] if two >= 0 else [])
            assert max(ends) >= promised or (one >= 0 and left[one][0] is None)
        promised = promised if promise is None else max(promised, promise)
    # And as soon as the other side's bound, or that of the key, has passed the last time of a partner.
    bounds, there, gone = {}, set(), set()
    for batch, pairs in zip(batches, found, strict=True):
        gone |= set(pairs)
        for side, claims in enumerate(batch[4:] or ((), ())):
            there |= {(side, number) for *_, number in batch[2 * side]}
            for key, bound in [(None, batch[2 * side + 1]), *claims]:
                bounds[side, key] = max(bounds.get((side, key), -99), -99 if bound is None else bound)
        for pair in expected(left, right, met, how):
            side, number = (LEFT_SIDE, pair[0]) if pair[1] < 0 else (RIGHT_SIDE, pair[1])
            if -1 in pair and how != "semi" and (side, number) in there:
                key, time, _ = (left, right)[side][number]
                passed = max(bounds.get((1 - side, each), -99) for each in (None, key))
                assert pair in gone or passed <= band.partners(side, np.array([time]))[1][0]
    last = reports[-1]
    assert (last.left_rows, last.right_rows, last.results) == (len(left), len(right), len(flat(found)))
    assert (last.left_late, last.right_late, last.left_kept, last.right_kept) == (0, 0, 0, 0)
    assert store.values.keys() == {("head", 0)}


@given(INTEGERS_OR_TEXTS, BANDS, st.sampled_from(["inner", "left", "right", "full"]))
def test_latest_ends_with_the_newest_pair_of_each_key_however_rows_came(case, band, how):
    schemas, ((left, right), batches) = case
    store = DictStore()
    found, _, _ = run_all(JoinShard, plan(band, how, *schemas, output="latest"), batches, store)
    assert store.values.keys() == {("head", 0)}

    def order(pair):
        ends = [rows[at][1] for rows, at in zip((left, right), pair, strict=True) if at >= 0]
        return max(ends), min(ends)

    def key(pair):
        return left[pair[0]][0] if pair[0] >= 0 else right[pair[1]][0]

    table = {}
    for pairs in found:
        assert len({key(pair) for pair in pairs}) == len(pairs)
        for pair in pairs:
            if key(pair) not in table or order(pair)[0] >= order(table[key(pair)])[0]:
                table[key(pair)] = pair
    newest = {}
    for pair in expected(left, right, meets(band), how):
        newest[key(pair)] = max(newest.get(key(pair), order(pair)), order(pair))
    assert {each: order(pair) for each, pair in table.items()} == newest


@pytest.mark.parametrize(("at", "last"), [(0, 7), (2, 8)])
def test_a_row_at_the_last_time_is_kept_and_one_before_it_is_not(at, last):
    for time, kept in ((last, 1), (last - 1, 0)):
        batch = [[], 10, [], 10]
        batch[at : at + 2] = [(1, time, 0)], None
        _, _, (report,) = run_all(JoinShard, plan(IntervalBand(2, 3)), [batch])
        assert report.left_kept + report.right_kept == kept


def test_late_rows_meet_what_is_still_kept_and_are_counted():
    batches = [([(1, 10, 0), (1, 3, 1)], 20, [], 9), ([], None, [(1, 5, 0), (1, 8, 1)], None)]
    found, _, reports = run_all(JoinShard, plan(IntervalBand(2, 3)), batches)
    # The left's row at 3 is let go by the right's bound, 9; that at 10 meets the late row at 8.
    assert found == [[], [(0, 1)]]
    assert (reports[-1].left_late, reports[-1].right_late) == (0, 2)


@pytest.mark.parametrize("kind", [pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32(), pa.int32()], ids=str)
def test_times_of_any_kind_meet_and_are_promised(kind):
    join = plan(IntervalBand(2, 3), "full", *(each.set(1, pa.field("t", kind)) for each in (LEFT, RIGHT)))
    given_rows = [(1, 10, 0), (1, 20, 1)], [(1, 8, 0), (1, 14, 1)]
    both = [
        [frame(side.schema, rows, bound)]
        for side, rows, bound in zip((join.left, join.right), given_rows, (12, 14), strict=True)
    ]
    result, report = JoinShard(0, join, DictStore()).run(*both)
    assert result.schema.field("join_time").type == kind
    raw = pa.int32() if kind in (pa.date32(), pa.int32()) else pa.int64()
    assert [part.column("join_time").cast(raw).to_pylist() for part in split_punctuation(result)] == [[10], [10]]
    assert report.promised == 10
    as_of = AsOfPlan(join.left, join.right, "left", 5)
    rows = AsOfShard(0, as_of, DictStore()).run(*both)[0].to_pylist()
    assert [(row["a"], row["b"]) for row in rows if not row[SYSTEM]["punctuation"]] == [(0, 0)]


def test_a_row_without_a_time_is_refused():
    with pytest.raises(MalformedRowError, match="no time"):
        JoinShard(0, plan(), DictStore()).run(frames(LEFT, [(1, None, 1)]), [])


def test_other_columns_do_not_take_the_state_and_new_columns_are_null():
    store = DictStore()
    run_all(JoinShard, plan(), [([(1, 10, 0)], 0, [], 0)], store)
    with pytest.raises(CheckpointError, match="columns"):
        JoinShard(0, plan(left=LEFT.remove(2)), store)
    more = pa.schema([*list(LEFT)[:3], ("c", pa.string()), LEFT.field(SYSTEM)])
    result, _ = JoinShard(0, plan(left=more), store).run([], frames(RIGHT, [(1, 11, 7)]))
    assert [(row["a"], row["b"], row["c"]) for row in result.to_pylist()] == [(0, 7, None)]


def test_batches_of_thousands_of_rows_are_merged_and_read_by_time():
    chance = np.random.default_rng(1)
    join = plan(IntervalBand(50, 50))
    left, right = (
        [(int(key), at // 10, at) for at, key in enumerate(chance.integers(0, 400, 30_000))] for _ in range(2)
    )
    batches = [
        (left[at : at + 1500], at // 10 + 150, right[at : at + 1500], at // 10 + 150) for at in range(0, 30_000, 1500)
    ]
    found, _, reports = run_all(JoinShard, join, batches)
    by_key = {}
    for row in right:
        by_key.setdefault(row[0], []).append(row)
    pairs = [(one[2], two[2]) for one in left for two in by_key.get(one[0], ()) if abs(two[1] - one[1]) <= 50]
    assert flat(found) == sorted(pairs)
    # λ(F + lag): ten rows a unit, 50 units and the part of time that is not over yet.
    assert reports[-1].left_kept <= 10 * (50 + join.band.segment + 1)


@pytest.mark.parametrize(("schemas", "one", "two"), [(INTEGERS, 1, 2), (TEXTS, "x", "y")])
def test_a_key_whose_partners_have_all_come_is_given_and_dropped_alone(schemas, one, two):
    join = plan(IntervalBand(2, 3), "left", *schemas)
    start = ([(one, 10, 0), (two, 10, 1), (one, 11, 2)], None, [], 0)
    # 13 is the last time at which 10 can have a partner: the bound 14 lets go of it.
    for bound, given_then, kept, late in (
        (13, [], 3, [(0, 5), (1, 6), (2, 5)]),
        (14, [(0, -1)], 3, [(1, 6), (2, 5)]),
        (15, [(0, -1), (2, -1)], 1, [(1, 6)]),
    ):
        store = DictStore()
        found, _, reports = run_all(JoinShard, join, [start, ([], None, [], None, [], [(one, bound)])], store)
        assert (sorted(found[1]), reports[1].left_kept) == (given_then, kept)
        late_rows = ([], None, [(one, 11, 5), (two, 11, 6)], None)
        found, _, reports = run_all(JoinShard, join, [late_rows, ([], None, [], 99)], store)
        # The late row of the key meets what has not been given; nothing is given twice.
        assert (sorted(found[0]), found[1], reports[1].right_late) == (late, [], 1)


def test_a_row_that_comes_when_its_key_is_over_does_not_wait():
    batch = ([(1, 10, 0), (2, 10, 1)], None, [], 0, [], [(1, 14)])
    found, _, reports = run_all(JoinShard, plan(IntervalBand(2, 3), "left"), [batch])
    assert (found, reports[0].left_kept) == ([[(0, -1)]], 1)


def test_punctuation_of_a_key_is_passed_on_where_both_sides_allow_it():
    join, store = plan(IntervalBand(2, 3), "left"), DictStore()
    # A row of the left without a partner leaves when the right has passed it by 3.
    for left, right, wanted in (
        ((5, []), (4, [(1, 20)]), [(None, 1, "join/0"), (1, 5, ALL_FEEDS)]),
        ((None, [(1, 30), (2, 30)]), (None, []), [(1, 17, ALL_FEEDS)]),
        ((None, []), (10, []), [(None, 5, "join/0"), (2, 7, ALL_FEEDS)]),
        ((None, [(1, ENDED)]), (None, [(1, ENDED)]), [(1, None, ALL_FEEDS)]),
        ((50, []), (50, []), [(None, 47, "join/0")]),
        ((None, []), (None, []), []),
    ):
        result, _ = JoinShard(0, join, store).run(frames(LEFT, [], *left), frames(RIGHT, [], *right))
        rows = [] if result is None else result.to_pylist()
        assert [(row["k"], row["join_time"], row[SYSTEM]["source"]) for row in rows] == wanted


def test_nothing_is_promised_of_a_key_that_the_results_do_not_have():
    """They are rows of the left, whose update key is another column."""
    own = pa.schema([("u", pa.int64()), *LEFT])
    left, right = JoinSide(("k",), "t", own, ("u",)), JoinSide(("k",), "t", RIGHT, ("k",))
    whole = to_frame(punctuation_rows(own, ["f"], 0, t=pa.array([4])))
    for join, shard in (
        (JoinPlan(left, right, IntervalBand(2, 3), how="semi"), JoinShard),
        (AsOfPlan(left, right), AsOfShard),
    ):
        result, _ = shard(0, join, DictStore()).run([whole], frames(RIGHT, [], 4, [(1, 30)]))
        assert [(row["k"], row["u"]) for row in result.to_pylist()] == [(None, None)]


SCHEMA = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def batches(keys, ons, times, bound=None):
    parts = [table(SCHEMA, list(zip(keys, ons, times, strict=True)))]
    if bound is not None:
        parts.append(punctuation_rows(SCHEMA, ["f"], 0, t=pa.array([bound])))
    return iter(pa.concat_tables(parts).combine_chunks().to_batches())


def sent(pack, given):
    found = {}
    for batch in pack(given):
        for slot, packed, side in zip(*(batch.column(at).to_pylist() for at in range(3)), strict=True):
            rows, punctuation = split_punctuation(from_frame(packed))
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
