import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import SchemaError
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array, system_field
from upstream.operators.joins.pair_kernel import sorted_rows
from upstream.operators.joins.plan import JoinSide
from upstream.operators.joins.side import NUMBER, ROW, KeptSide, as_schema, as_sent, received, received_schema
from upstream.operators.runtime.feeds import ENDED, punctuation_rows
from upstream.operators.runtime.pack import by_arrival
from upstream.operators.state.store import DictStore

from .batches import table

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = JoinSide(("k",), "t", SCHEMA)


def rows(times, first=0, key=1):
    keys = np.full(len(times), key)
    found = table(SCHEMA, [(key, time) for time in times])
    found = found.append_column(ROW, pa.array(first + np.arange(len(times)))).append_column(NUMBER, pa.array(keys))
    return sorted_rows(keys, np.array(times, dtype=np.int64), found)


def test_rows_are_found_by_time_until_they_leave_at_the_bound_unless_they_have_met():
    store = DictStore()
    side = KeptSide(store, "left", SIDE, 10, {})
    side.add(rows([5, 9, 10, 25], first=100))
    side.mark(np.array([101]), np.array([9]))
    assert side.leaving(5).num_rows == 0
    assert side.leaving(10).column(ROW).to_pylist() == [100]
    side.drop_below(10)
    side.drop_below(5)
    side = KeptSide(store, "left", SIDE, 10, side.to_json())
    assert list(side.between(0, 9)) == []
    assert side.first() == 10
    assert side.leaving(11).column(ROW).to_pylist() == [102]
    side.drop_below(ENDED)
    assert side.rows == 0
    assert store.values == {}


def test_a_part_by_time_is_sorted_after_many_small_batches():
    store, saved = DictStore(), {}
    chance = np.random.default_rng(3)
    for batch in range(60):
        side = KeptSide(store, "left", SIDE, 10, saved)
        side.add(rows(chance.integers(0, 40, 50).tolist(), first=batch * 50, key=batch % 3))
        saved = side.to_json()
    side = KeptSide(store, "left", SIDE, 10, saved)
    parts = list(side.between(0, 40))
    assert sum(len(part.times) for part in parts) == 3000
    assert len(parts) < 20
    for part in parts:
        order = np.lexsort((part.times, part.numbers))
        assert np.array_equal(part.times[order], part.times)
        assert np.array_equal(part.numbers[order], part.numbers)


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3)), max_size=12)


def sent_rows(rows, bounds=(), **system):
    """Rows as (feed, arrival, seq), with their place as the key, then the punctuation of some feeds."""
    parts = [SCHEMA.empty_table()]
    for place, (feed, arrival, seq) in enumerate(rows):
        column = system_array(
            source=feed,
            seq=np.array([seq]),
            arrival_us=np.array([arrival]),
            **{n: np.array([v]) for n, v in system.items()},
        )
        parts.append(pa.table([pa.array([place]), pa.array([10 + place]), column], schema=SCHEMA))
    for feed, bound in bounds:
        parts.append(punctuation_rows(SCHEMA, [feed], 7, t=pa.array([bound])))
    return pa.concat_tables(parts)


def test_the_name_of_an_input_partition_travels_once():
    feed = "a long path " * 20
    few, many = (as_sent(sent_rows([(feed, 1, seq) for seq in range(rows)], [(feed, 9)]), "left") for rows in (1, 40))
    assert len(to_frame(many.combine_chunks())) - len(to_frame(few.combine_chunks())) < 40 * 50
    assert set(system_field(many, "source").to_pylist()) == {f"left/{feed}"}


@given(ROWS, st.integers(1, 4), st.randoms())
def test_rows_come_in_the_order_of_arrival_however_they_were_sent(rows, tasks, random):
    whole = sent_rows(rows)
    wanted = by_arrival(whole).column("k").to_pylist()
    # Rows that agree in all three keep the order of their task, so they are of one task.
    task = {each: random.randrange(tasks) for each in set(rows)}
    parts = [whole.filter(pa.array([task[each] == n for each in rows], pa.bool_())) for n in range(tasks)]
    frames = [to_frame(as_sent(part, "left").combine_chunks()) for part in parts]
    random.shuffle(frames)
    found, said = received(frames, SCHEMA)
    assert found.column("k").to_pylist() == wanted
    assert system_field(found, "arrival").cast(pa.int64()).to_pylist() == sorted(arrival for _, arrival, _ in rows)
    assert found.schema == received_schema(SCHEMA)
    assert said.num_rows == 0


@pytest.mark.parametrize("sent", [True, False])
def test_punctuation_keeps_its_input_partition(sent):
    given = [sent_rows([("f", 1, 1)], [("f", 9), ("g", 5)]), sent_rows([], [("h", 4)])]
    frames = [to_frame((as_sent(each, "left") if sent else each).combine_chunks()) for each in given]
    rows, said = received(frames, SCHEMA)
    assert rows.column("k").to_pylist() == [0]
    before = "left/" if sent else ""
    bounds = zip(system_field(said, "source").to_pylist(), said.column("t").to_pylist(), strict=True)
    assert list(bounds) == [(f"{before}f", 9), (f"{before}g", 5), (f"{before}h", 4)]
    assert system_field(said, "arrival").cast(pa.int64()).to_pylist() == [7, 7, 7]


def test_frames_without_rows_are_no_rows():
    rows, said = received([], SCHEMA)
    assert (rows.num_rows, said.num_rows, rows.schema) == (0, 0, received_schema(SCHEMA))


@pytest.mark.parametrize(
    ("system", "match"), [({"deleted": True}, "1 rows .* tombstones"), ({"covered": 2}, "several updates")]
)
def test_rows_that_no_join_by_time_can_use_are_refused_where_they_are_packed(system, match):
    for refuse in (
        lambda rows: as_sent(rows, "left"),
        lambda rows: received([to_frame(rows.combine_chunks())], SCHEMA),
    ):
        with pytest.raises(SchemaError, match=match):
            refuse(sent_rows([("f", 1, 1)], **system))


def test_columns_get_the_join_types():
    given = as_sent(sent_rows([("f", 1, 1)]), "left")
    narrow = given.set_column(0, "k", given.column("k").cast(pa.int32()))
    rows, _ = received([to_frame(narrow.combine_chunks())], SCHEMA)
    assert rows.schema == received_schema(SCHEMA)


def test_a_table_with_the_columns_of_a_schema_is_not_cast():
    given = pa.table({"b": pa.array([1], pa.int64()), "a": ["x"]})
    kept = as_schema(given, pa.schema([("a", pa.string())]))
    assert kept.column("a").chunk(0).buffers()[2].address == given.column("a").chunk(0).buffers()[2].address
    other = pa.schema([pa.field("b", pa.int32(), nullable=False), ("a", pa.string())])
    assert as_schema(given, other).schema == other
