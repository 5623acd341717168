import pyarrow as pa
from kit.continuous import refused, relation

from upstream.expressions.nodes import Field
from upstream.expressions.places import Text
from upstream.expressions.scalars import Visible
from upstream.language.scope import OUTER, Scope, is_outer, outer_field

X, Y, Z = (Field(name, pa.int64()) for name in "xyz")
TEXT = Text("SELECT x")


def test_the_query_around_is_seen_last_and_marked():
    around = Scope([Visible("a", "x", X), Visible("a", "y", Y)])
    scope = Scope([Visible("b", "x", Z)], around)
    assert scope.resolve("", "x", (0, 0), TEXT) == Z
    found = scope.resolve("", "y", (0, 0), TEXT)
    assert found == outer_field("y", pa.int64())
    assert is_outer(found.name)
    assert found.name == OUTER + "y"
    assert scope.joined([Visible("c", "q", Y)]).resolve("a", "x", (0, 0), TEXT) == outer_field("x", pa.int64())
    assert scope.mapped([]).resolve("", "x", (0, 0), TEXT) == outer_field("x", pa.int64())


def test_names_of_with_are_known_below_it_alone():
    refused(
        "WITH a AS (SELECT 1 FROM b), b AS (SELECT * FROM trade) SELECT * FROM a",
        "there is no stream, relation or view 'b'",
    )
    refused("WITH a AS (SELECT * FROM trade), A AS (SELECT * FROM trade) SELECT * FROM a", "two subqueries of WITH")
    assert relation("WITH trade AS (SELECT sym FROM quote [NOW]) SELECT * FROM trade").schema.names == ["sym"]
