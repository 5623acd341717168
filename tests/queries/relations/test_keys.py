"""Keys of relations: no two rows have the same one at any time, and what has none is not given one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from kit.continuous import CATALOG, END_US, FORMS, MOMENT, rows_of_streams

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.expressions.nodes import Field
from upstream.queries.language import bind
from upstream.queries.relations.keys import _keys, key_of
from upstream.queries.relations.nodes import Join, Latest, Project, Relation, Stream, Windowed
from upstream.queries.relations.sharing import shareable

KEYS = (
    ("SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id", ("route_id",)),
    ("SELECT COUNT(*) AS n FROM LATEST(buses)", ()),
    ("SELECT speed, vehicle_id AS v FROM LATEST(buses) WHERE speed > 3", ("v",)),
    ("SELECT speed, route_id FROM LATEST(buses)", None),
    ("SELECT upper(vehicle_id) AS v FROM LATEST(buses)", None),
    ("SELECT sym, px FROM trade [PARTITION BY sym ROWS 1] EMIT CHANGES", ("sym",)),
    ("SELECT sym, px FROM trade [PARTITION BY sym ROWS 2] EMIT CHANGES", None),
    ("SELECT px FROM trade [ROWS 1] EMIT CHANGES", ()),
    ("SELECT sym, px FROM trade [RANGE 1 HOUR] EMIT CHANGES", None),
    ("SELECT DISTINCT sym, px FROM trade [RANGE 1 HOUR] EMIT CHANGES", ("sym", "px")),
    ("SELECT DISTINCT vehicle_id, speed FROM LATEST(buses)", ("vehicle_id",)),
    ("SELECT sym FROM trade [NOW] UNION SELECT sym FROM quote [NOW] EMIT CHANGES", ("sym",)),
    ("SELECT sym FROM trade [NOW] UNION ALL SELECT sym FROM quote [NOW] EMIT CHANGES", None),
    (
        "SELECT vehicle_id FROM LATEST(buses) EXCEPT ALL SELECT sym FROM quote [RANGE 1 HOUR] EMIT CHANGES",
        ("vehicle_id",),
    ),
    (
        "SELECT sym FROM quote [RANGE 1 HOUR] INTERSECT ALL SELECT vehicle_id FROM LATEST(buses) EMIT CHANGES",
        ("sym",),
    ),
    (
        (
            "SELECT vehicle_id, bid FROM LATEST(buses) AS a JOIN quote [PARTITION BY sym ROWS 1] AS b "
            "ON a.route_id = b.sym EMIT CHANGES"
        ),
        ("vehicle_id",),
    ),
    (
        (
            "SELECT vehicle_id, b.sym, bid FROM LATEST(buses) AS a LEFT JOIN quote [PARTITION BY sym ROWS 1] AS b "
            "ON a.speed < b.bid EMIT CHANGES"
        ),
        ("vehicle_id", "sym"),
    ),
    (
        (
            "SELECT b.sym, vehicle_id FROM quote [PARTITION BY sym ROWS 1] AS b RIGHT JOIN LATEST(buses) AS a "
            "ON a.route_id = b.sym EMIT CHANGES"
        ),
        ("vehicle_id",),
    ),
    (
        (
            "SELECT a.sym AS one, b.sym AS two FROM trade [PARTITION BY sym ROWS 1] AS a FULL JOIN "
            "quote [PARTITION BY sym ROWS 1] AS b ON a.px = b.bid EMIT CHANGES"
        ),
        None,
    ),
    (
        (
            "SELECT sym, px FROM trade [PARTITION BY sym ROWS 1] AS a LEFT SEMI JOIN quote [NOW] AS b ON a.px = b.bid "
            "EMIT CHANGES"
        ),
        ("sym",),
    ),
    (
        (
            "SELECT b.sym, bid FROM LATEST(buses) AS a LEFT JOIN quote [PARTITION BY sym ROWS 1] AS b "
            "ON a.vehicle_id = b.sym EMIT CHANGES"
        ),
        None,
    ),
    (
        (
            "SELECT vehicle_id, c FROM LATEST(buses) AS a JOIN (SELECT sym, n, COUNT(*) AS c FROM trade [RANGE 1 HOUR] "
            "GROUP BY sym, n) AS b ON a.route_id = b.sym EMIT CHANGES"
        ),
        None,
    ),
    (
        "SELECT vehicle_id, speed FROM LATEST(buses) UNION SELECT sym, bid FROM quote [RANGE 1 HOUR] EMIT CHANGES",
        ("vehicle_id", "speed"),
    ),
    (
        "SELECT sym, n FROM trade [NOW] QUALIFY ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px) = 1 EMIT CHANGES",
        ("sym",),
    ),
    (
        "SELECT sym, n FROM trade [NOW] QUALIFY ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px) <= 2 EMIT CHANGES",
        None,
    ),
    ("SELECT sym, n FROM trade [RANGE 1 HOUR] ORDER BY n LIMIT 1 EMIT CHANGES", ()),
    ("ISTREAM(SELECT sym, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY sym)", None),
)


@pytest.mark.parametrize(("sql", "key"), KEYS, ids=[sql for sql, _ in KEYS])
def test_the_key_of_a_query_is_the_fewest_columns_that_identify_its_rows(sql, key):
    found = key_of(bind(sql, CATALOG).plan)
    assert (found if found is None else set(found)) == (key if key is None else set(key))


@pytest.mark.parametrize("sql", [*FORMS, *(sql for sql, _ in KEYS)])
def test_the_key_stays_when_a_plan_is_made_shareable(sql):
    plan = bind(sql, CATALOG).plan
    assert key_of(shareable(plan)) == key_of(plan)


def test_a_join_of_many_relations_has_few_keys_to_choose_from():
    schema = pa.schema({"k": pa.string(), "t": MOMENT})
    plan: Relation | None = None
    for number in range(8):
        newest = Windowed(Stream(f"s{number}", schema, key=("k",), event_time="t", updates=True), Latest())
        named = Project(newest, ((f"k{number}", Field("k", pa.string())),))
        on = ((Field(f"k{number - 1}", pa.string()), Field(f"k{number}", pa.string())),)
        plan = named if plan is None else Join(plan, named, "inner", on)
    assert plan is not None
    assert sorted(_keys(plan)) == [(f"k{number}",) for number in range(8)]


KEYED = [sql for sql in (*FORMS, *(sql for sql, _ in KEYS)) if key_of(bind(sql, CATALOG).plan) is not None]


@pytest.mark.parametrize("sql", KEYED)
@settings(max_examples=25)
@given(given_rows=rows_of_streams())
def test_no_two_rows_have_one_key_at_any_time(sql: str, given_rows: dict[str, pl.DataFrame]) -> None:
    plan = bind(sql, CATALOG).plan
    key = key_of(plan)
    assert key is not None
    evaluation = Evaluation(DictStore())
    evaluation.add("q", plan)
    outcome = evaluation.step(given_rows, END_US)
    assert not outcome.failed, outcome.failed
    changes = outcome.changes["q"]
    at = [changes.columns.index(name) for name in key]
    by_time: dict[int, list[tuple[Any, ...]]] = {}
    for row in changes.rows():
        by_time.setdefault(row[-2], []).append(row)
    there: Counter[tuple[Any, ...]] = Counter()
    for _, moved in sorted(by_time.items()):
        for row in moved:
            there[tuple(row[place] for place in at)] += row[-1]
        assert all(0 <= count <= 1 for count in there.values()), there
