"""Expressions below operators: they lead on where rows that matter to each other are equal in them, and only there."""

import pyarrow as pa
import pytest
from kit.continuous import bound, relation

from upstream.expressions.nodes import Call, Constant, Field
from upstream.expressions.types import call, cast
from upstream.hosting.placement.placement import all_fields, loses_rows, pairs_of, tracked
from upstream.operators.relations.plan.nodes import Join, Stream, walk

TEXT = pa.string()


def led(sql, expression):
    """Return what an expression over a relation is over its streams."""
    found = tracked(relation(sql), expression, lambda node: isinstance(node, Stream))
    return None if found is None else [str(each) for _, each in found]


JOIN = "SELECT a.sym AS x, b.sym AS y, bid, px FROM trade [RANGE 1 HOUR] a {} JOIN quote [NOW] b ON a.sym = b.sym"


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [("", True, True), ("LEFT", True, False), ("RIGHT", False, True), ("FULL", False, False)],
)
def test_of_an_outer_join_the_side_whose_rows_are_always_there_places(how, left, right):
    sql = JOIN.format(how)
    assert led(sql, Field("x", TEXT)) == (["sym", "sym"] if left else None)
    assert led(sql, Field("y", TEXT)) == (["sym", "sym"] if right else None)
    assert led(sql, Field("px", pa.float64())) is None


def test_of_a_full_join_what_one_side_has_places():
    x, y = Field("x", TEXT), Field("y", TEXT)
    for pair in ((x, y), (y, x)):
        assert led(JOIN.format("FULL"), Call("coalesce", pair, TEXT)) == ["sym", "sym"]


def test_groups_lead_on_what_makes_them():
    sql = "SELECT sym, upper(sym) AS u, MAX(px) AS m FROM trade [RANGE 1 HOUR] GROUP BY sym, upper(sym)"
    assert led(sql, Field("u", TEXT)) == ["upper(sym)"]
    assert led(sql, call("lower", [Field("sym", TEXT)])) == ["lower(sym)"]
    assert led(sql, Field("m", pa.float64())) is None


def test_texts_of_equal_floats_do_not_place():
    px = Field("px", pa.float64())
    text = Call("greatest", (cast(px, pa.float64()), Constant(1.0, pa.float64())), pa.float64())
    grouped = "SELECT px FROM trade [RANGE 1 HOUR] GROUP BY px"
    assert led(grouped, px) == ["px"]
    assert led(grouped, text) is None
    assert led("SELECT px FROM trade [RANGE 1 HOUR]", text) == [str(text)]


def test_what_can_fail_does_not_place_nor_do_constants_and_lists():
    plan = "SELECT n, sym FROM trade [RANGE 1 HOUR]"
    assert led(plan, Field("n", pa.int64())) == ["n"]
    assert led(plan, call("divide", [Constant(1, pa.int64()), Field("n", pa.int64())])) is None
    assert led(plan, Constant(1, pa.int64())) is None
    assert led(plan, Call("array", (Field("sym", TEXT),), pa.list_(TEXT))) is None


def test_windows_of_rows_lead_on_their_partitions_and_ends_of_windows_nowhere():
    rows = "SELECT sym, n FROM trade [PARTITION BY sym ROWS 2]"
    assert led(rows, Field("sym", TEXT)) == ["sym"]
    assert led(rows, Field("n", pa.int64())) is None
    tumbled = "SELECT window_end, sym FROM TUMBLE(trade, t, INTERVAL '1' HOUR)"
    assert led(tumbled, Field("sym", TEXT)) == ["sym"]
    assert led(tumbled, Field("window_end", pa.timestamp("us", "UTC"))) is None


def test_tracking_ends_at_the_cut():
    plan = relation("SELECT sym, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY sym")
    n = Field("n", pa.int64())
    assert tracked(plan, n, lambda node: node is plan) == [(plan, n)]
    assert all_fields(plan) == (Field("sym", TEXT), n)


def test_not_in_compares_all_rows_and_correlates_by_the_rest():
    def the_join(plan):
        return next(each for each in walk(plan) if isinstance(each, Join))

    alone = bound("SELECT sym FROM trade [NOW] WHERE sym NOT IN (SELECT sym FROM quote [NOW])").plan
    assert pairs_of(the_join(alone)) == ()
    correlated = "SELECT sym FROM trade [NOW] a WHERE px NOT IN (SELECT bid FROM quote [NOW] b WHERE b.sym = a.sym)"
    assert [str(one) for one, _ in pairs_of(the_join(bound(correlated).plan))] == ["sym"]


def test_it_is_known_whether_rows_leave():
    assert loses_rows(relation("SELECT sym FROM trade [NOW]"))
    assert not loses_rows(relation("SELECT sym FROM trade"))
