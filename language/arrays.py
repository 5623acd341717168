"""UNNEST, EXPLODE, POSEXPLODE and GENERATE_SERIES: a row for each element of an array."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from ..expressions.kinds import spark_name
from ..expressions.nodes import Constant, Expression, Field, fields
from ..expressions.scalars import Visible
from ..expressions.types import call, cast
from ..operators.relations.plan.nodes import ConstantRow, Explode, Project, Relation
from .grammar import ARRAY_FUNCTIONS, ArrayFunction
from .scalars import Scalars
from .scope import Context, Scope, is_outer
from .select_list import bare


def array_function(join: exp.Join) -> ArrayFunction | None:
    """Return the function of arrays that replaces a source."""
    return join.this.this if isinstance(join.this.this, ArrayFunction) else None


def bind_elements(
    join: exp.Join, function: ArrayFunction, relation: Relation, scope: Scope, context: Context
) -> tuple[Relation, Scope]:
    """Return the rows of a relation with the elements of their arrays."""
    text, on = context.text, join.args.get("on")
    if join.args.get("using") or (on is not None and not (isinstance(on, exp.Boolean) and on.this)):
        raise text.error(on or join, "elements of an array have no condition", hint="ON TRUE, and write it into WHERE")
    if join.text("side") in {"RIGHT", "FULL"} or join.text("kind") in {"SEMI", "ANTI"} or join.args.get("method"):
        raise text.error(join, "elements of an array are joined from the left", expected="CROSS JOIN or LEFT JOIN")
    names = _names_of(join.this, function, context)
    array = _array(function, Scalars(text, scope, where=f"in {function.args['kind']}").bind(function.this), context)
    made = _exploded(relation, array, function, context, outer=join.text("side") == "LEFT")
    columns = zip(names, _values(made, function.args["kind"]), strict=True)
    context.noted(made, join)
    return made, scope.joined([Visible(join.this.alias, name, value) for name, value in columns])


def constant_elements(node: exp.Expr, function: ArrayFunction, context: Context) -> Relation:
    """Return the elements of an array of constants, which need no source before them."""
    text = context.text
    if function.this.find(exp.Column) is not None:
        raise text.error(
            node, "elements of a column need its source before them", hint="FROM s CROSS JOIN UNNEST(xs) AS t(x)"
        )
    for clause in ("stream_window", "sample"):
        if node.args.get(clause) is not None:
            raise text.error(node.args[clause], "elements of an array are not a stream", hint="leave it out")
    names = _names_of(node, function, context)
    array = _array(function, Scalars(text, Scope([]), where=f"in {function.args['kind']}").bind(function.this), context)
    name = context.fresh("array")
    made = _exploded(ConstantRow(((name, array),)), Field(name, array.type), function, context)
    columns = zip(names, _values(made, function.args["kind"]), strict=True)
    return context.noted(Project(context.noted(made, node), tuple(columns)), node)


def _names_of(node: exp.Expr, function: ArrayFunction, context: Context) -> list[str]:
    """Return the names of a function's columns: those behind its alias, or its own."""
    kind, numbered, alias = function.args["kind"], _is_numbered(function), node.args.get("alias")
    given = [each.name for each in alias.args.get("columns") or []] if alias is not None else []
    names = given or _names(kind, node.alias, numbered=numbered)
    if len(names) != 1 + numbered:
        expected = f"AS t({', '.join(_names(kind, 'x', numbered=numbered))})"
        raise context.text.error(alias, f"{len(names)} names do not fit {kind}", expected=expected)
    return names


def _is_numbered(function: ArrayFunction) -> bool:
    return function.args["kind"].startswith("POS") or bool(function.args.get("ordinality"))


def _names(kind: str, alias: str, *, numbered: bool = True) -> list[str]:
    if "EXPLODE" in kind:
        return ["pos", "col"] if kind.startswith("POS") else ["col"]
    return [alias or kind.lower(), *(["ordinality"] if numbered else [])]


def _array(function: exp.Expr, array: Expression, context: Context) -> Expression:
    if not pa.types.is_list(array.type) or any(map(is_outer, fields(array))):
        what = "a column of the query around" if any(map(is_outer, fields(array))) else spark_name(array.type)
        raise context.text.error(function, f"this is of {what}", expected="an array of the sources before it")
    return array


def _exploded(
    relation: Relation, array: Expression, function: ArrayFunction, context: Context, *, outer: bool = False
) -> Explode:
    outer = outer or bool(function.args.get("outer")) or function.args["kind"].endswith("_OUTER")
    position = context.fresh("position") if _is_numbered(function) else None
    return Explode(relation, array, context.fresh("element"), position, outer)


def _values(made: Explode, kind: str) -> list[Expression]:
    """Return the columns of a function: Spark counts from 0 and before the element, SQL from 1 and behind it."""
    element = Field(made.name, made.schema.field(made.name).type)
    if made.position is None:
        return [element]
    place = Field(made.position, pa.int32())
    if kind.startswith("POS"):
        return [place, element]
    return [element, call("add", [cast(place, pa.int64()), Constant(1, pa.int64())])]


def bind_generators(
    items: Sequence[exp.Expr], relation: Relation, scalars: Scalars, context: Context
) -> tuple[Relation, dict[int, Expression]]:
    """Return the rows with the elements of an array in SELECT, and their value by its node's id."""
    found: dict[int, Expression] = {}
    for item in items:
        node = bare(item)
        kind = node.this if isinstance(node, exp.Anonymous) else ""
        series = kind == "GENERATE_SERIES"
        if kind not in ARRAY_FUNCTIONS or kind.startswith("POS") or not (series or len(node.expressions) == 1):
            continue
        if found:
            raise context.text.error(item, "SELECT has a second array", hint="FROM s LATERAL VIEW EXPLODE(xs) t AS x")
        array = _array(node, scalars.bind(node if series else node.expressions[0]), context)
        relation = _exploded(relation, array, ArrayFunction(this=node, kind=kind), context)
        context.noted(relation, node)
        found[id(node)] = _values(relation, kind)[0]
    return relation, found
