"""The context gives fresh names and notes places."""

from __future__ import annotations

from kit.continuous import CATALOG, TRADE, refused, relation

from upstream.queries.language.binder import _context
from upstream.queries.language.context import Bound
from upstream.queries.language.places import Text
from upstream.queries.relations.nodes import Now, Windowed


def test_places_are_noted_once_and_names_are_fresh() -> None:
    context = _context(Text("SELECT"), CATALOG)
    node = Windowed(TRADE, Now())
    assert context.noted(node, (1, 2)) is node
    context.noted(Windowed(TRADE, Now()), (5, 6))
    assert context.places[node] == (context.text, (1, 2))
    assert context.fresh("x") != context.fresh("x")


def test_names_of_with_are_known_below_it_alone() -> None:
    context = _context(Text("SELECT"), CATALOG)
    below = context.within({"a": Bound(Windowed(TRADE, Now()))})
    assert set(below.ctes) == {"a"}
    assert not context.ctes
    assert below.fresh("x") != context.fresh("x")
    refused(
        "WITH a AS (SELECT 1 FROM b), b AS (SELECT * FROM trade) SELECT * FROM a",
        "there is no stream, relation or view 'b'",
    )
    refused("WITH a AS (SELECT * FROM trade), A AS (SELECT * FROM trade) SELECT * FROM a", "two subqueries of WITH")
    assert relation("WITH trade AS (SELECT sym FROM quote [NOW]) SELECT * FROM trade").schema.names == ["sym"]
