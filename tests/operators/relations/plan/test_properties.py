"""Which plans need no low-watermark: those over newest rows and stored relations alone."""

import pyarrow as pa
import pytest
from kit.continuous import MOMENT, bound, relation
from kit.known_columns import KEYS, NEVER_NULL

from upstream.expressions.nodes import Field
from upstream.operators.relations.plan.nodes import Copies, Join, Latest, Project, Relation, Stream, WindowOver
from upstream.operators.relations.plan.properties import key_of, never_null, on_arrival


@pytest.mark.parametrize(
    ("text", "newest"),
    [
        ("SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id", True),
        ("SELECT a.vehicle_id FROM LATEST(buses) AS a JOIN LATEST(buses) AS b ON a.route_id = b.route_id", True),
        ("SELECT b.vehicle_id, d.type FROM LATEST(buses) AS b JOIN Domains AS d ON b.route_id = d.domain", True),
        ("ISTREAM(SELECT vehicle_id FROM LATEST(buses))", True),
        ("SELECT domain FROM Domains", True),
        ("SELECT * FROM buses", False),
        ("SELECT vehicle_id FROM buses [RANGE 1 HOUR]", False),
        ("SELECT vehicle_id FROM buses [PARTITION BY vehicle_id ROWS 2]", False),
        ("SELECT vehicle_id FROM LATEST(buses) AS b JOIN trade [NOW] AS t ON b.route_id = t.sym", False),
        ("SELECT vehicle_id FROM LATEST(buses) WHERE route_id IN (SELECT sym FROM quote [NOW])", False),
        ("SELECT COUNT(*) AS n FROM (ISTREAM(SELECT vehicle_id FROM LATEST(buses))) [RANGE 1 HOUR]", False),
    ],
)
def test_newest_rows_alone_do_not_wait(text, newest):
    assert on_arrival(bound(text).plan) == newest


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


@pytest.mark.parametrize("sql", NEVER_NULL)
def test_it_is_known_which_columns_have_a_value(sql):
    assert never_null(relation(sql)) == NEVER_NULL[sql]


def test_numbers_of_copies_are_never_null():
    assert never_null(Copies(relation("SELECT sym FROM trade [NOW]"))) == {"copy"}
