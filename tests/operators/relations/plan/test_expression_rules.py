"""Operands in one order, and which expressions never fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import relation

from upstream.expressions.nodes import conjuncts
from upstream.operators.relations.plan.expression_rules import conjuncts_in_order, never_fails, ordered, size
from upstream.operators.relations.plan.nodes import WindowOver


def expression(text):
    return dict(relation(f"SELECT {text} AS x FROM trade [NOW]").columns)["x"]


def operands(sql):
    return ordered(expression(sql))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("px > 3 AND n < 2", "n < 2 AND px > 3"),
        ("px > 3", "3 < px"),
        ("px >= n", "n <= px"),
        ("px + n", "n + px"),
        ("n = 1 OR (n = 2 OR n = 3)", "(n = 3 OR n = 1) OR n = 2 OR n = 1"),
        ("n IN (3, 1, 2)", "n IN (1, 2, 3, 3)"),
        ("n = 5", "n = 5L"),
        ("px = 5", "px = 5.0D"),
        ("n BETWEEN 1 AND 3", "n <= 3 AND n >= 1"),
        ("CAST(n AS BIGINT)", "n"),
    ],
)
def test_the_same_meaning_has_one_order(one, other):
    assert operands(one) == operands(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("px - n", "n - px"),
        ("px > 3", "px >= 3"),
        ("n = 1 AND px = 2", "n = 1 OR px = 2"),
        ("sym = '5'", "sym = '6'"),
        ("NOT (n = 1)", "n = 1"),
        ("n / 2", "n DIV 2"),
        ("CAST(n AS INT)", "n"),
        ("TRY_CAST(sym AS INT)", "CAST(sym AS INT)"),
        ("sym LIKE 'a'", "'a' LIKE sym"),
    ],
)
def test_another_meaning_is_another_expression(one, other):
    assert operands(one) != operands(other)


@given(st.permutations(["n > 1", "px < 2", "sym = 'a'", "n <> 7"]))
def test_conditions_have_no_order(parts):
    plan = relation("SELECT * FROM trade [NOW] WHERE " + " AND ".join(parts))
    usual = relation("SELECT * FROM trade [NOW] WHERE n > 1 AND px < 2 AND sym = 'a' AND n <> 7")
    assert [str(each) for each in conjuncts(plan.condition)] != []
    assert conjuncts_in_order(plan.condition) == conjuncts_in_order(usual.condition)
    assert isinstance(plan.source, WindowOver)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("n > 1 AND sym IS NOT NULL", True),
        ("px > n", True),
        ("1 / n > 2", False),
        ("n + 1 > 2", False),
        ("CAST(sym AS INT) = 1", False),
        ("try_add(n, 1) > 2", True),
        ("sym LIKE 'a%'", True),
    ],
)
def test_what_never_fails(sql, expected):
    assert never_fails(expression(sql)) == expected


def test_size_counts_nodes():
    assert size(expression("n")) == 1
    assert size(expression("n + n * n")) == 5
