import pyarrow as pa
import pytest
from kit.continuous import MOMENT, bound, relation
from kit.known_columns import KEYS

from upstream.expressions.nodes import Field
from upstream.operators.relations.plan.nodes import Join, Latest, Project, Relation, Stream, WindowOver
from upstream.operators.relations.plan.properties import key_of


@pytest.mark.parametrize("sql", KEYS)
def test_the_key_of_a_query_is_the_fewest_columns_that_identify_its_rows(sql):
    found = key_of(relation(sql))
    assert (found if found is None else set(found)) == KEYS[sql]


def test_a_stream_has_no_key():
    assert key_of(bound("ISTREAM(SELECT sym, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY sym)").plan) is None


def test_a_join_of_many_relations_has_few_keys_to_choose_from():
    """Else there would be one for each choice of columns that are equal."""
    schema = pa.schema({"k": pa.string(), "t": MOMENT})
    plan: Relation | None = None
    for number in range(40):
        newest = WindowOver(Stream(f"s{number}", schema, key=("k",), event_time="t", updates=True), Latest())
        named = Project(newest, ((f"k{number}", Field("k", pa.string())),))
        on = ((Field(f"k{number - 1}", pa.string()), Field(f"k{number}", pa.string())),)
        plan = named if plan is None else Join(plan, named, "inner", on)
    assert plan is not None
    assert len(key_of(plan) or ()) == 1
