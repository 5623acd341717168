"""Three-valued logic and conditionals. An operand that Spark does not evaluate in a row cannot fail there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from .building import Failure, Stages, Value, when_needed

__all__ = ["CONDITIONALS", "Conditional"]

Conditional = Callable[[Sequence[Value], Stages], Value]


def _is(operand: Value, *, value: bool) -> bool:
    """Return whether an operand has this value in all rows and cannot fail."""
    return operand.constant and not operand.failures and pl.select(operand.values).item() is value


def _and(operands: Sequence[Value], stages: Stages) -> Value:
    left, right = operands
    if _is(right, value=False):  # like Spark's optimizer, for any left side
        return right
    if not right.failures:
        return Value(left.values & right.values, left.failures)
    first = stages.shared(left.values)
    needed = first.fill_null(value=True)  # null AND false is false, so Spark evaluates it
    return Value(first & right.values, (*left.failures, *when_needed(right.failures, needed)))


def _or(operands: Sequence[Value], stages: Stages) -> Value:
    left, right = operands
    if _is(right, value=True):
        return right
    if not right.failures:
        return Value(left.values | right.values, left.failures)
    first = stages.shared(left.values)
    needed = ~first.fill_null(value=False)
    return Value(first | right.values, (*left.failures, *when_needed(right.failures, needed)))


def _not(operands: Sequence[Value], stages: Stages) -> Value:  # noqa: ARG001 all conditionals take the same
    return Value(~operands[0].values, operands[0].failures)


def _case(operands: Sequence[Value], stages: Stages) -> Value:
    conditions, results, default = operands[:-1:2], operands[1:-1:2], operands[-1]
    failing = any(each.failures for each in operands[1:])
    failures: list[Failure] = []
    values: pl.Expr = default.values
    open_rows = pl.lit(value=True)
    chosen: list[tuple[pl.Expr, pl.Expr]] = []
    for condition, result in zip(conditions, results, strict=True):
        holds = stages.shared(condition.values) if failing else condition.values
        chosen.append((holds, result.values))
        if failing:
            failures += when_needed(condition.failures, open_rows)
            failures += when_needed(result.failures, open_rows & holds)
            open_rows &= ~holds.fill_null(value=False)
        else:
            failures += condition.failures
    if failing:
        failures += when_needed(default.failures, open_rows)
    for holds, result in reversed(chosen):
        values = pl.when(holds).then(result).otherwise(values)
    return Value(values, tuple(failures))


def _coalesce(operands: Sequence[Value], stages: Stages) -> Value:
    failures: list[Failure] = []
    needed: pl.Expr | None = None
    for at, each in enumerate(operands):
        failures += each.failures if needed is None else when_needed(each.failures, needed)
        if any(other.failures for other in operands[at + 1 :]):
            missing = stages.shared(each.values).is_null()
            needed = missing if needed is None else needed & missing
    if len(operands) == 1:
        return operands[0]
    return Value(pl.coalesce([each.values for each in operands]), tuple(failures))


def _in(operands: Sequence[Value], stages: Stages) -> Value:
    """Compare with candidates until one is equal. If none is and a candidate is null, the result is null."""
    value, *candidates = operands
    if value.null:
        return Value(pl.lit(None, dtype=pl.Boolean))
    failures = list(value.failures)
    item = stages.shared(value.values)
    failing = any(each.failures for each in candidates)
    if not failing:
        return Value(pl.any_horizontal([item == each.values for each in candidates]), tuple(failures))
    found: pl.Expr | None = None
    for each in candidates:
        equal = item == each.values
        needed = item.is_not_null() if found is None else item.is_not_null() & ~found.fill_null(value=False)
        failures += when_needed(each.failures, needed)
        found = stages.shared(equal if found is None else found | equal)
    assert found is not None
    return Value(found, tuple(failures))


def _in_list(operands: Sequence[Value], stages: Stages) -> Value:  # noqa: ARG001 all conditionals take the same
    value, values = operands
    return Value(value.values.is_in(values.values), value.failures)


def _try(operands: Sequence[Value], stages: Stages) -> Value:
    """Return the value, null where a part of it fails. Lasting failures stay."""
    value = operands[0]
    lasting = tuple(each for each in value.failures if each.lasting)
    failing = [each.where for each in value.failures if not each.lasting]
    if not failing:
        return value
    return Value(pl.when(~stages.shared(pl.any_horizontal(failing))).then(value.values), lasting)


CONDITIONALS: Mapping[str, Conditional] = {
    "and": _and,
    "case": _case,
    "coalesce": _coalesce,
    "in": _in,
    "in_list": _in_list,
    "not": _not,
    "or": _or,
    "try": _try,
}
