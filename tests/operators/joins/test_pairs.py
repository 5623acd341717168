import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.join_batches import BANDS, streams
from kit.join_batches import plan as join_plan

from upstream.conf.errors import OptionError, QueryError, SchemaError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array, system_field
from upstream.operators.joins import shard as shard_module
from upstream.operators.joins.band import LEFT, RIGHT, IntervalBand
from upstream.operators.joins.pair_kernel import sorted_rows
from upstream.operators.joins.pairs import NewestPairs, Pairs, pair_condition, superseded
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.shard import JoinShard
from upstream.operators.joins.side import ROW
from upstream.operators.runtime.feeds import ENDED
from upstream.operators.state.store import DictStore

from .batches import INTEGERS, TEXTS, run_all, table

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.float64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def plan(**changes):
    side = JoinSide(("k",), "t", SCHEMA)
    return JoinPlan(side, side, IntervalBand(5, 5), **changes)


def rows(*given):
    """Rows (key, time, value); the number of each is ten times its place, its arrival its time plus 100."""
    keys, times = (np.array([row[at] for row in given], dtype=np.int64) for at in range(2))
    found = table(SCHEMA, given, arrival_us=times + 100)
    return sorted_rows(keys, times, found.append_column(ROW, pa.array(np.arange(len(given)) * 10)))


def test_a_pair_has_the_later_time_and_the_later_arrival():
    pairs = Pairs(plan())
    pairs.add(rows((1, 5, 0.5), (1, 9, 1.5)), np.array([0, 1]), rows((1, 7, 2.5)), np.array([0, 0]))
    found = pairs.table(3, 40)
    assert found.select(["t", "t_right", "join_time", "left_row", "right_row"]).to_pylist() == [
        {"t": 5, "t_right": 7, "join_time": 7, "left_row": 0, "right_row": 0},
        {"t": 9, "t_right": 7, "join_time": 9, "left_row": 10, "right_row": 0},
    ]
    assert system_field(found, "seq").to_pylist() == [40, 41]
    assert system_field(found, "source").to_pylist() == ["join/3"] * 2
    assert system_field(found, "arrival").cast(pa.int64()).to_pylist() == [107, 109]
    assert pairs.rows == 2


def test_a_row_alone_has_its_key_and_its_time_and_no_number_for_the_other():
    for side, own in ((LEFT, "t"), (RIGHT, "t_right")):
        pairs = Pairs(plan(how="full"))
        pairs.add_unmatched(side, rows((4, 5, 0.5)).table)
        (row,) = pairs.table(0, 0).to_pylist()
        assert (row["k"], row["join_time"], row[own]) == (4, 5, 5)
        other = {"t": "t_right", "t_right": "t"}[own]
        assert row[other] is None
        assert {row["left_row"], row["right_row"]} == {0, -1}
        assert (row["left_row"] == -1) == (side == RIGHT)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("l.v > r.v", [False, True, False]),
        ("L.V > r.v and R.`v` > 0", [False, True, False]),
        ("l.v IS NULL OR l.v < r.v", [True, False, True]),
        ("r.v BETWEEN 1 AND 2", [True, True, True]),
        ("l.v = r.v", [False, False, False]),
        ("l.v + 1 >= r.v", [True, True, False]),
        ("CASE WHEN l.v > 1 THEN 1 / (r.v - l.v) > 0 ELSE true END", [True, True, True]),
    ],
)
def test_conditions(text, holds):
    condition = pair_condition(plan(condition=text))
    left, right = rows((1, 5, 0.5), (1, 9, float("nan")), (1, 10, None)).table, rows((1, 7, 1.5)).table
    assert condition(left, np.arange(3), right, np.zeros(3, dtype=np.int64)).to_pylist() == holds


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("v > 3", "ambiguous.*write l.v or r.v"),
        ("l.x > 3", "'l' has no column 'x'"),
        ("m.v > 3", "no source 'm'"),
        ("l.v >", "an expression"),
        ("l.v + 1", "not a condition"),
        ("max(l.v) > r.v", "no function max"),
    ],
)
def test_conditions_that_are_refused(text, match):
    with pytest.raises((OptionError, SchemaError), match=match):
        pair_condition(plan(condition=text))


def test_a_condition_without_a_value_ends_the_query():
    condition = pair_condition(plan(condition="1 / (l.v - r.v) > 0"))
    one = rows((1, 5, 0.5)).table
    with pytest.raises(QueryError, match="no value for 1 pairs"):
        condition(one, np.zeros(1, dtype=np.int64), one, np.zeros(1, dtype=np.int64))


def plan_of(kind):
    side = JoinSide(("k",), "t", pa.schema([("k", kind), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]))
    return JoinPlan(side, side, IntervalBand(8, 8), output="latest")


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_an_older_pair_of_the_same_time_does_not_follow_a_newer_one(kind):
    join, store, saved = plan_of(kind), DictStore(), ()

    def batch(promised, *pairs):
        """Pairs (key, time of the left, time of the right)."""
        nonlocal saved
        keys, left, right = zip(*pairs, strict=True) if pairs else ((), (), ())
        system = system_array(source="f", seq=np.arange(len(keys)), arrival_us=np.arange(len(keys)))
        later = [max(one, two or 0) for one, two in zip(left, right, strict=True)]
        columns = {
            "k": pa.array(keys, pa.int64()).cast(kind),
            "t": left,
            "t_right": right,
            "join_time": later,
            SYSTEM: system,
        }
        newest = NewestPairs(store, join, saved)
        found = newest.filtered(pa.table([columns[name] for name in join.schema.names], schema=join.schema), promised)
        saved = [list(run) for run in newest.known]
        return [(row["t"], row["t_right"]) for row in found.to_pylist()]

    assert batch(0, (1, 10, 9), (1, 8, 10), (2, 3, 3)) == [(10, 9), (3, 3)]
    assert batch(0, (1, 7, 10)) == batch(0, (1, 10, None)) == []
    assert batch(0, (1, 9, 10), (1, 12, 4)) == [(12, 4)]
    assert batch(13) == []
    assert {kind for kind, _ in store.values} <= {"newest"}
    assert batch(100) == []
    assert store.values == {}


def test_the_time_may_be_one_of_the_columns_that_are_equal():
    side = JoinSide(("k", "t"), "t", pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]))
    join = JoinPlan(side, side, IntervalBand(0, 0), output="latest")
    system = system_array(source="f", seq=np.arange(2), arrival_us=np.arange(2))
    columns = {"k": pa.array([1, 1]), "t": pa.array([5, 7]), "join_time": pa.array([5, 7]), SYSTEM: system}
    pairs = pa.table([columns[name] for name in join.schema.names], schema=join.schema)
    assert NewestPairs(DictStore(), join, ()).filtered(pairs, 0).column("t").to_pylist() == [5, 7]


def latest_plan(band, how="inner", schemas=INTEGERS, **changes):
    return join_plan(band, how, *schemas, output="latest", **changes)


def meets(band, side, one, two):
    least, greatest = band.partners(side, np.array([one], dtype=np.int64))
    return least[0] <= two <= greatest[0]


@given(
    BANDS,
    st.sampled_from([LEFT, RIGHT]),
    st.lists(st.tuples(st.integers(0, 1), st.integers(-6, 12)), max_size=10),
    st.integers(-14, 20),
)
def test_a_row_goes_if_whatever_comes_and_meets_it_meets_a_newer_row_of_its_key(band, side, pairs, bound):
    numbers, times = (np.array([pair[at] for pair in pairs], dtype=np.int64) for at in (0, 1))
    rows = sorted_rows(numbers, times, pa.table({"at": np.arange(len(pairs))}))
    gone = superseded(rows, ("at",), True, band, side, bound)
    coming = range(bound, 40)
    expected = []
    for at, (key, time) in enumerate(zip(rows.numbers.tolist(), rows.times.tolist(), strict=True)):
        newer = [
            other
            for number, other in zip(rows.numbers.tolist(), rows.times.tolist(), strict=True)
            if number == key and other > time
        ]
        # Another one may be newer still: each row that comes must meet one of them.
        met = all(
            any(meets(band, side, other, each) for other in newer) for each in coming if meets(band, side, time, each)
        )
        if newer and met:
            expected.append(at)
    # The kernel asks for one row that meets all, the next newer one; where several share the work, rows stay.
    assert set(gone.tolist()) <= set(expected)
    for at in set(expected) - set(gone.tolist()):
        here = rows.numbers == rows.numbers[at]
        nearest = min(rows.times[here & (rows.times > rows.times[at])])
        least = max(bound, int(band.partners(side, rows.times[[at]])[0][0]))
        greatest = int(band.partners(side, rows.times[[at]])[1][0])
        assert least > greatest or not meets(band, side, int(nearest), least)


def test_rows_of_one_time_and_of_keys_with_one_hash_stay():
    both = pa.table({"k": ["a", "b"]})
    rows = sorted_rows(np.array([7, 7]), np.array([1, 2]), both)
    assert superseded(rows, ("k",), False, IntervalBand(9, 9), LEFT, HIGHEST).tolist() == []
    assert superseded(rows, ("k",), True, IntervalBand(9, 9), LEFT, HIGHEST).tolist() == [0]
    equal = sorted_rows(np.array([7, 7]), np.array([2, 2]), both)
    assert superseded(equal, ("k",), True, IntervalBand(9, 9), LEFT, HIGHEST).tolist() == []
    none = sorted_rows(np.array([7, 7]), np.array([LOWEST, LOWEST + 1]), both)
    assert superseded(none, ("k",), True, IntervalBand(0, 0), LEFT, LOWEST).tolist() == []


def run(join, batches, store, *, drops=True):
    """Pairs and reports of each batch."""
    with pytest.MonkeyPatch.context() as patch:
        if not drops:
            patch.setattr(shard_module, "supersedes", lambda *_: False)
        found, _, reports = run_all(JoinShard, join, batches, store)
    return [sorted(pairs) for pairs in found], reports


INTEGERS_OR_TEXTS = st.one_of(st.tuples(st.just(INTEGERS), streams()), st.tuples(st.just(TEXTS), streams(texts=True)))
CONDITIONS = [None, "l.a >= r.b OR r.b = 3", "r.b > 2", "l.a > 2", "r.k IS NOT NULL"]


MET = [([(1, 0, 0)], None, [], None), ([(1, 1, 1)], None, [(1, 1, 2)], 1), ([], ENDED, [], ENDED)]


@example((INTEGERS, (None, MET)), IntervalBand(9, 9), "full", None)  # one that has met stays known after others went
@given(INTEGERS_OR_TEXTS, BANDS, st.sampled_from(["inner", "left", "right", "full"]), st.sampled_from(CONDITIONS))
def test_each_batch_gives_the_same_newest_pairs_as_a_join_that_drops_nothing(case, band, how, condition):
    schemas, (_, batches) = case
    join = latest_plan(band, how, schemas, condition=condition)
    kept, dropped = DictStore(), DictStore()
    expected, before = run(join, batches, kept, drops=False)
    found, after = run(join, batches, dropped)
    assert found == expected
    for one, two in zip(before, after, strict=True):
        assert two.left_kept <= one.left_kept
        assert two.right_kept <= one.right_kept
        assert (two.results, two.unmatched, two.promised) == (one.results, one.unmatched, one.promised)
    assert dropped.values.keys() == {("head", 0)}  # both have ended


def many(batches=30, rows=200):
    """Two keys with many updates within one reach of the join."""
    chance = np.random.default_rng(5)
    found = []
    for batch in range(batches):
        first = batch * rows
        cells = []
        for _ in range(2):
            cells += [[(int(chance.integers(0, 2)), first + at, first + at) for at in range(rows)], first + rows]
        found.append(tuple(cells))
    return found


def test_the_state_stays_small_where_keys_have_many_rows():
    join = latest_plan(IntervalBand(100_000, 100_000), "full")
    kept, dropped = DictStore(), DictStore()
    expected, before = run(join, many(), kept, drops=False)
    found, after = run(join, many(), dropped)
    assert found == expected
    assert before[-1].left_kept == before[-1].right_kept == 6000
    assert after[-1].left_kept <= 800  # twice what is needed, and a batch
    assert after[-1].left_superseded + after[-1].left_kept == 6000
    assert after[-1].right_superseded + after[-1].right_kept == 6000
    sizes = [sum(map(len, store.values.values())) for store in (kept, dropped)]
    assert sizes[1] * 4 < sizes[0]


def test_rows_stay_where_the_condition_needs_their_own_values():
    batches = many(4)
    for condition, sides in (("l.a >= r.b", "neither"), ("l.a > 2", "right"), ("r.b > 2", "left")):
        _, reports = run(latest_plan(IntervalBand(9999, 9999), condition=condition), batches, DictStore())
        went = [name for name in ("left", "right") if getattr(reports[-1], f"{name}_superseded")]
        assert went == ([] if sides == "neither" else [sides])
