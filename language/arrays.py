"""UNNEST, EXPLODE and POSEXPLODE: a row for each element of an array."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from ..expressions.kinds import spark_name
from ..expressions.nodes import Constant, Expression, Field, fields
from ..expressions.scalars import Visible
from ..expressions.types import call, cast
from ..operators.relations.plan.nodes import Explode, Relation
from .grammar import ARRAY_FUNCTIONS, ArrayFunction
from .scalars import Scalars
from .scope import Context, Scope, is_outer
from .select_list import bare


def array_function(join: exp.Join) -> ArrayFunction | None:
    """Return the function of arrays that stands in place of a source."""
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
    kind = function.args["kind"]
    numbered = kind.startswith("POS") or bool(function.args.get("ordinality"))
    alias = join.this.args.get("alias")
    given = [each.name for each in alias.args.get("columns") or []] if alias is not None else []
    name = join.this.alias
    names = given or _names(kind, name, numbered=numbered)
    if len(names) != 1 + numbered:
        expected = f"AS t({', '.join(_names(kind, 'x', numbered=numbered))})"
        raise text.error(alias, f"{len(names)} names do not fit {kind}", expected=expected)
    array = _array(function, Scalars(text, scope, where=f"in {kind}").bind(function.this), context)
    outer = join.text("side") == "LEFT" or bool(function.args.get("outer")) or kind.endswith("_OUTER")
    made = _exploded(relation, array, numbered=numbered, outer=outer, context=context)
    values = _values(made, kind)
    context.noted(made, join)
    return made, scope.joined([Visible(name, each, value) for each, value in zip(names, values, strict=True)])


def _names(kind: str, alias: str, *, numbered: bool = True) -> list[str]:
    if kind != "UNNEST":
        return ["pos", "col"] if kind.startswith("POS") else ["col"]
    return [alias or "unnest", *(["ordinality"] if numbered else [])]


def _array(function: exp.Expr, array: Expression, context: Context) -> Expression:
    if not pa.types.is_list(array.type) or any(map(is_outer, fields(array))):
        what = "a column of the query around" if any(map(is_outer, fields(array))) else spark_name(array.type)
        raise context.text.error(function, f"this is of {what}", expected="an array of the sources before it")
    return array


def _exploded(relation: Relation, array: Expression, *, numbered: bool, outer: bool, context: Context) -> Explode:
    return Explode(relation, array, context.fresh("element"), context.fresh("position") if numbered else None, outer)


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
        if kind not in ARRAY_FUNCTIONS or kind.startswith("POS") or len(node.expressions) != 1:
            continue
        if found:
            raise context.text.error(item, "SELECT has a second array", hint="FROM s LATERAL VIEW EXPLODE(xs) t AS x")
        array = _array(node, scalars.bind(node.expressions[0]), context)
        relation = _exploded(relation, array, numbered=False, outer=kind.endswith("_OUTER"), context=context)
        context.noted(relation, node)
        found[id(node)] = _values(relation, kind)[0]
    return relation, found
