import polars as pl
import pyarrow as pa
from hypothesis import given

from upstream.operators.relations.operator import Evaluable
from upstream.operators.relations.plan.nodes import Project, Where
from upstream.operators.relations.stateless import InputRelation, ProjectOperator, UnionAll
from upstream.operators.relations.zsets import TIME, WEIGHT, Span

from .checking import LONG, TEXT, S, arrivals, call, check, column, constant, windows

SUM = call("add", column("v"), column("t"), kind=LONG)


@given(source=windows(S), given=arrivals())
def test_where_and_select_are_what_sql_finds(source, given):
    kept = Where(source[0], call("gt", column("v"), constant(1)))
    plan = Project(kept, (("x", SUM), ("k", column("k", TEXT))))
    check(plan, f"SELECT v + t, k FROM ({source[1]}) WHERE v > 1", given)


SPAN = Span.first(9)
CHANGES = pl.DataFrame({"v": [1, None, 3], TIME: [1, 1, 1], WEIGHT: [1, -1, 1]})


def test_what_leaves_and_comes_with_equal_columns_is_no_change():
    one = Evaluable(lambda _: pl.Series([7]), frozenset(), LONG)  # a constant: one value for all rows
    assert ProjectOperator([("x", one)]).step([CHANGES.head(2)], SPAN).height == 0
    assert ProjectOperator([("x", one)]).step([CHANGES], SPAN).rows() == [(7, 1, 1)]


def test_both_inputs_of_a_union_have_the_names_of_the_first():
    other = CHANGES.rename({"v": "w"}).with_columns(pl.col(WEIGHT) * -1, pl.col("w").cast(pl.Int32))
    assert UnionAll(pa.schema([("v", LONG)])).step([CHANGES, other], SPAN).height == 0


def test_changes_that_are_received_are_consolidated():
    twice = pl.concat([CHANGES, CHANGES])
    assert InputRelation(pa.schema([("v", LONG)])).step([twice], SPAN)[WEIGHT].to_list() == [2, -2, 2]
