"""The syntax nodes that sqlglot lacks, and the words of the grammar."""

from __future__ import annotations

from typing import ClassVar

from sqlglot.expressions.core import Expression

STREAM_OPERATORS = ("ISTREAM", "DSTREAM", "RSTREAM")
TABLE_FUNCTIONS = ("HOP", "TUMBLE", "LATEST")

# Words that are never a name without backquotes.
NOT_NAMES = frozenset(
    [
        "ALL",
        "AND",
        "ANTI",
        "AS",
        "BETWEEN",
        "CASE",
        "CROSS",
        "DISTINCT",
        "ELSE",
        "END",
        "EXCEPT",
        "EXISTS",
        "FROM",
        "FULL",
        "GROUP",
        "HAVING",
        "ILIKE",
        "IN",
        "INNER",
        "INTERSECT",
        "IS",
        "JOIN",
        "LEFT",
        "LIKE",
        "LIMIT",
        "MINUS",
        "NATURAL",
        "NOT",
        "NULL",
        "ON",
        "OR",
        "ORDER",
        "OUTER",
        "QUALIFY",
        "RIGHT",
        "RLIKE",
        "SELECT",
        "SEMI",
        "THEN",
        "UNION",
        "USING",
        "WHEN",
        "WHERE",
        "WITH",
        "TRUE",
        "FALSE",
        "LATERAL",
    ]
)
# Words that may follow a source or a select item: an alias of that name needs AS.
NOT_ALIASES = NOT_NAMES | frozenset(
    ["EMIT", "OFFSET", "SAMPLE", "TABLESAMPLE", "WINDOW", "FETCH", "SORT", "CLUSTER", "DISTRIBUTE", "PIVOT", "UNPIVOT"]
)


class StreamWindow(Expression):
    """``[PARTITION BY k RANGE 10 MINUTES SLIDE 1 MINUTE WHERE p]`` behind a stream."""

    arg_types: ClassVar[dict[str, bool]] = {
        "partition": False,
        "range": False,
        "rows": False,
        "now": False,
        "unbounded": False,
        "slide": False,
        "where": False,
    }


class StreamOperator(Expression):
    """``ISTREAM(query)``, ``DSTREAM(query)``, ``RSTREAM(query)``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class TableFunction(Expression):
    """``HOP(S, t, slide, size)``, ``TUMBLE(S, t, size)``, ``LATEST(S)`` in FROM."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "expressions": False}


class Emit(Expression):
    """``query EMIT CHANGES``, ``EMIT ON WINDOW CLOSE``, ``EMIT PERIODIC INTERVAL '5' SECOND``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "every": False}


class Sum(Expression):
    """``a + b + c + …`` of many operands, added from left to right."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class InList(Expression):
    """``n IN (1, 2, 3, …)`` of many literals of one kind: a tuple of numbers, or of texts."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "values": True}
