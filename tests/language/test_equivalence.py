"""What is known of a plan of any form holds for its rows, and no rewriting changes them, whatever arrives."""

import re
from collections import Counter
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given, settings
from kit.continuous import END_US, FORMS, bound, rows_of_streams
from kit.known_columns import PLANS

from upstream.hosting.host_plan import result_of
from upstream.language import binder
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.bounds import state_of
from upstream.operators.relations.plan.common_parts import in_words, shareable
from upstream.operators.relations.plan.nodes import Changes, Project, walk
from upstream.operators.relations.plan.normalize import normalized
from upstream.operators.relations.plan.properties import key_of, never_null, on_arrival
from upstream.operators.relations.zsets import TIME, WEIGHT, dtypes_of
from upstream.operators.state.store import DictStore


def as_written(sql):
    with patch.object(binder, "normalized", lambda plan: plan):
        return bound(sql).plan


def below_names(plan):
    """Return the plan below the names that the query gives."""
    inner = plan.source if isinstance(plan, Changes) else plan
    return inner.source if isinstance(inner, Project) else inner


@pytest.mark.parametrize("sql", FORMS)
def test_normalising_keeps_columns_and_is_done_once(sql):
    assert PLANS[sql].schema == as_written(sql).schema
    assert normalized(PLANS[sql]) == PLANS[sql]


@pytest.mark.parametrize("sql", PLANS)
def test_a_shareable_plan_has_the_columns_bounds_key_clock_and_table_of_the_query(sql):
    plan = PLANS[sql]
    made = shareable(plan)
    assert made.schema == plan.schema
    assert state_of(made)
    assert below_names(shareable(made)) == below_names(made)
    assert all(len(set(each.schema.names)) == len(each.schema.names) for each in walk(made))
    assert key_of(made) == key_of(plan)
    assert on_arrival(made) == on_arrival(plan)
    one, other = result_of(plan), result_of(made)
    assert (one.kind, one.key, one.schema, one.identity) == (other.kind, other.key, other.schema, other.identity)
    for name in {name for each in walk(made) for name in each.schema.names}:
        found = in_words(f"{name} = 1", made)
        assert not re.search(r"[xga]:[0-9a-f]{16}", found), found
        assert found.endswith(" = 1")


@pytest.mark.parametrize("sql", PLANS)
@settings(max_examples=25)
@given(given_rows=rows_of_streams())
def test_rows_are_those_of_the_query_as_it_is_written_and_as_they_are_known(sql, given_rows):
    # An update stream has no rows without a key.
    given_rows["buses"] = given_rows["buses"].drop_nulls("vehicle_id")
    plan, result = PLANS[sql], result_of(PLANS[sql])
    evaluation = Evaluation(DictStore())
    for name, each in {
        "written": as_written(sql) if sql in FORMS else plan,
        "plan": plan,
        "shareable": shareable(plan),
        "table": shareable(result.plan),
    }.items():
        evaluation.add(name, each)
    outcome = evaluation.step(given_rows, END_US)
    assert not outcome.failed, outcome.failed
    changes = outcome.changes["plan"]
    assert changes.drop(TIME, WEIGHT).schema == dtypes_of(plan.schema)
    assert counted(changes) == counted(outcome.changes["written"]) == counted(outcome.changes["shareable"])
    assert all(changes[name].null_count() == 0 for name in never_null(plan))
    key = key_of(plan)
    if key is not None:
        assert_keyed(changes, key)
    rows = result.of(outcome.changes["table"])
    assert rows.columns == [*result.schema.names, TIME, WEIGHT]
    if result.kind == "latest":
        assert_keyed(rows, result.key)
        assert rows.select(result.key).null_count().row(0) == (0,) * len(result.key)
        assert there(rows, plan.schema.names) == there(changes, plan.schema.names)


CALLS = (
    "SELECT sym, doubled(px) AS d FROM trade [RANGE 1 HOUR] WHERE doubled(n) > 3",
    "SELECT doubled(px) AS d, COUNT(*) AS c FROM trade [RANGE 1 HOUR] GROUP BY doubled(px) HAVING MAX(doubled(n)) > 2",
    "SELECT sym, SUM(doubled(px)) FILTER (WHERE doubled(n) > 2) AS s FROM trade [RANGE 5 MINUTES] GROUP BY sym",
    "SELECT route_id, MAX(doubled(speed)) AS s FROM fast GROUP BY route_id",
    "SELECT IF(n > 1, doubled(px), 1.5D) AS c FROM trade [PARTITION BY sym ROWS 2 WHERE doubled(n) > 1]",
    "SELECT px, bid FROM trade [RANGE 1 HOUR] AS a LEFT JOIN quote [NOW] AS b ON a.sym = b.sym AND doubled(b.bid) > px",
    "SELECT sym, MAX(doubled(px)) OVER (PARTITION BY sym ORDER BY t) AS m FROM trade",
    "SELECT sym, px FROM trade [RANGE 1 HOUR] ORDER BY doubled(px) DESC, sym LIMIT 2",
)


@pytest.mark.parametrize("sql", CALLS)
@settings(max_examples=15)
@given(given_rows=rows_of_streams())
def test_a_function_in_python_counts_as_the_expression_that_it_computes(sql, given_rows):
    given_rows["buses"] = given_rows["buses"].drop_nulls("vehicle_id")
    evaluation = Evaluation(DictStore())
    for text in (sql, re.sub(r"doubled\((\w+\.)?(\w+)\)", r"(CAST(\1\2 AS DOUBLE) * 2D)", sql)):
        assert bound(text).functions == (("doubled",) if text == sql else ())
        evaluation.add(text, shareable(bound(text).plan))
    outcome = evaluation.step(given_rows, END_US)
    assert not outcome.failed, outcome.failed
    one, other = outcome.changes.values()
    assert counted(one) == counted(other)


def counted(changes):
    counts: Counter[tuple[Any, ...]] = Counter()
    for *row, weight in changes.rows():
        counts[tuple(row)] += weight
    return Counter({row: count for row, count in counts.items() if count})


def assert_keyed(changes, key):
    """Check that no key is there twice at any time."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for _, at in changes.sort(TIME).group_by(TIME, maintain_order=True):
        for *values, weight in at.select(*key, WEIGHT).rows():
            counts[tuple(values)] += weight
        assert set(counts.values()) <= {0, 1}


def there(changes, columns):
    return changes.group_by(columns).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0).sort(columns).rows()
