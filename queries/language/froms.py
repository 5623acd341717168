"""FROM: sources and their joins, as one relation with a scope."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from ..expressions.nodes import Call, Expression, Field, all_of, conjuncts, fields
from ..expressions.typing import call
from ..relations.nodes import Join, JoinKind, Project, Relation, Stream
from .context import Context
from .scalars import Scalars
from .scope import Scope, Visible, is_outer
from .sources import Source, bind_source, visible

__all__ = ["Filtered", "From", "bind_from", "equalities", "made_distinct"]

_HOW: dict[tuple[str, str], JoinKind] = {
    ("LEFT", ""): "left",
    ("RIGHT", ""): "right",
    ("FULL", ""): "full",
    ("LEFT", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
}


@dataclass(frozen=True)
class From:
    """The relation of FROM."""

    relation: Relation
    scope: Scope
    streams: bool  # A source is a stream.
    bare: Stream | None  # The stream, if it is the only source and has no window.
    # Conditions of inner joins that read the outer query's columns, with their places.
    outer: tuple[tuple[Expression, exp.Expr], ...] = ()


@dataclass(frozen=True)
class Filtered:
    """FROM and WHERE of a SELECT."""

    source: From
    relation: Relation
    conditions: tuple[Expression, ...]  # Those of the relation's own WHERE.
    outer: tuple[tuple[Expression, exp.Expr], ...]  # Those that read the outer query's columns, with their places.
    joined: bool


def equalities(
    condition: Expression | None, left: set[str], right: set[str]
) -> tuple[list[tuple[Expression, Expression]], list[Expression]]:
    """Split a condition into pairs that must be equal, one of each side, and the rest."""
    pairs: list[tuple[Expression, Expression]] = []
    rest: list[Expression] = []
    for each in conjuncts(condition):
        if isinstance(each, Call) and each.function == "eq":
            one, other = each.arguments
            if fields(one) and fields(other):
                if fields(one) <= left and fields(other) <= right:
                    pairs.append((one, other))
                    continue
                if fields(one) <= right and fields(other) <= left:
                    pairs.append((other, one))
                    continue
        rest.append(each)
    return pairs, rest


def made_distinct(relation: Relation, taken: set[str], alias: str, context: Context) -> tuple[Relation, dict[str, str]]:
    """Rename the columns whose names are taken; return the relation and the new names."""
    names: dict[str, str] = {}
    for each in relation.schema.names:
        name = each
        if name in taken:
            name = f"{alias}.{each}"
            if name in taken or name in relation.schema.names:
                name = context.fresh(name)
        names[each] = name
    if all(old == new for old, new in names.items()):
        return relation, names
    columns = tuple((names[each.name], Field(each.name, each.type)) for each in relation.schema)
    return Project(relation, columns), names


def bind_from(select: exp.Select, context: Context, around: Scope | None) -> From:
    """Return the sources of a SELECT, joined from left to right."""
    hop_columns = _reads_window(select)
    source = bind_source(select.args["from_"].this, context, hop_columns=hop_columns)
    relation, streams = source.relation, source.streams
    scope = Scope(visible(source), around)
    joins: list[exp.Join] = select.args.get("joins") or []
    aliases = {source.alias.lower()}
    commas = False
    outer: list[tuple[Expression, exp.Expr]] = []
    for join in joins:
        other = bind_source(join.this, context, hop_columns=hop_columns)
        if other.alias.lower() in aliases and other.alias:
            raise context.text.error(
                join.this,
                f"two sources are named '{other.alias}'",
                hint=f"give this one another name: AS {other.alias}2",
            )
        aliases.add(other.alias.lower())
        how = _HOW.get((join.text("side"), join.text("kind")), "inner")
        plain = not join.args.get("on") and not join.args.get("using")
        if commas and how in {"right", "full"}:
            raise context.text.error(
                join, "a comma before this join leaves its left side open", hint="write CROSS JOIN"
            )
        commas = commas or (plain and not join.text("kind"))
        relation, scope, more = _joined(join, how, relation, scope, other, context)
        outer += more
        if outer and how != "inner" and (more or how in {"right", "full"}):
            raise context.text.error(
                outer[-1][1],
                f"a column of the query around is not supported in ON of {how.upper()} JOIN, nor before RIGHT and FULL",
                hint="write the condition into the subquery's WHERE, or join with the subquery in FROM",
            )
        streams = streams or (other.streams and how not in {"semi", "anti"})
    return From(relation, scope, streams, source.bare if not joins else None, tuple(outer))


def _reads_window(select: exp.Select) -> bool:
    for item in select.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            return True
    return any(each.name.lower() in {"window_start", "window_end"} for each in select.find_all(exp.Column))


def _joined(
    join: exp.Join, how: JoinKind, left: Relation, scope: Scope, other: Source, context: Context
) -> tuple[Relation, Scope, list[tuple[Expression, exp.Expr]]]:
    right, names = made_distinct(other.relation, set(left.schema.names), other.alias or "right", context)
    columns = [replace(each, expression=Field(names[each.name], each.expression.type)) for each in visible(other)]
    both = scope.joined(columns)
    lefts, rights = set(left.schema.names), set(right.schema.names)
    if join.args.get("using"):
        return *_using(join, how, left, right, scope, columns, context), []
    condition: Expression | None = None
    if join.args.get("on") is not None:
        condition = Scalars(context.text, both.mapped(both.columns), where="in ON").condition(join.args["on"])
    every = conjuncts(condition)
    outer = [each for each in every if any(map(is_outer, fields(each)))]
    pairs, rest = equalities(all_of([each for each in every if each not in outer]), lefts, rights)
    if how in {"semi", "anti"} and condition is None:
        raise context.text.error(join, "this join needs a condition", hint="write ON")
    made = context.noted(Join(left, right, how, tuple(pairs), all_of(rest)), join)
    at: exp.Expr = join.args.get("on") or join
    return made, scope if how in {"semi", "anti"} else both, [(each, at) for each in outer]


def _using(
    join: exp.Join,
    how: JoinKind,
    left: Relation,
    right: Relation,
    scope: Scope,
    columns: list[Visible],
    context: Context,
) -> tuple[Relation, Scope]:
    pairs: list[tuple[Expression, Expression]] = []
    merged: list[Visible] = []
    other = Scope(columns)
    for each in join.args["using"]:
        one = scope.mapped(scope.columns).resolve("", each.name, each, context.text)
        two = other.resolve("", each.name, each, context.text)
        equal = call("eq", [one, two])
        assert isinstance(equal, Call)
        pairs.append((equal.arguments[0], equal.arguments[1]))
        value = two if how == "right" else call("coalesce", [one, two]) if how == "full" else one
        merged.append(Visible("", each.name, value))
    made = context.noted(Join(left, right, how, tuple(pairs)), join)
    if how in {"semi", "anti"}:
        return made, scope
    used = {each.name.lower() for each in merged}
    hidden = [
        replace(each, plain=False, starred=False) if each.name.lower() in used and each.plain else each
        for each in (*scope.columns, *columns)
    ]
    # A merged column of an earlier USING has no table: it is gone once it is merged again.
    kept = [each for each in hidden if each.plain or each.table]
    return made, scope.mapped([*merged, *kept])
