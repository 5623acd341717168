import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import OptionError, QueryError, SchemaError
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_field
from upstream.operators.joins.band import LEFT, RIGHT, IntervalBand
from upstream.operators.joins.pair_kernel import sorted_rows
from upstream.operators.joins.pairs import Pairs, pair_condition
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.side import ROW

from .batches import table

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
