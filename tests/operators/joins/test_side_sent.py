import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import SchemaError
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array, system_field
from upstream.operators.joins.side import as_sent, received, received_schema
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.runtime.pack import by_arrival

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3)), max_size=12)


def table(rows, bounds=(), **system):
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
    few, many = (as_sent(table([(feed, 1, seq) for seq in range(rows)], [(feed, 9)]), "left") for rows in (1, 40))
    assert len(to_frame(many.combine_chunks())) - len(to_frame(few.combine_chunks())) < 40 * 50
    assert set(system_field(many, "source").to_pylist()) == {f"left/{feed}"}


@given(ROWS, st.integers(1, 4), st.randoms())
def test_rows_come_in_the_order_of_arrival_however_they_were_sent(rows, tasks, random):
    whole = table(rows)
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
    given = [table([("f", 1, 1)], [("f", 9), ("g", 5)]), table([], [("h", 4)])]
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
            refuse(table([("f", 1, 1)], **system))


def test_columns_get_the_join_types():
    given = as_sent(table([("f", 1, 1)]), "left")
    narrow = given.set_column(0, "k", given.column("k").cast(pa.int32()))
    rows, _ = received([to_frame(narrow.combine_chunks())], SCHEMA)
    assert rows.schema == received_schema(SCHEMA)
