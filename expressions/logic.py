"""Three-valued logic, conditionals, comparisons, structs, and arrays: also of numbers or times from one to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ..conf.errors import QueryError
from .calendar import DAY
from .coercion import Rule, common, implicit, misfit, with_common_type
from .columnar import Builder, Kernel, RowFailure, Stages, Value, on_series, polars_type, when_needed
from .kinds import DATE, DURATION, LONG, NULL, is_integral, is_time
from .nodes import Call, Constant, Days, Expression

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
    failures: list[RowFailure] = []
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
    failures: list[RowFailure] = []
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


def _nanvl(operands: Sequence[Value], stages: Stages) -> Value:
    value, other = operands
    number = stages.shared(value.values)
    failures = (*value.failures, *when_needed(other.failures, number.is_nan()))
    return Value(pl.when(number.is_nan()).then(other.values).otherwise(number), failures)


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
    "nanvl": _nanvl,
    "not": _not,
    "or": _or,
    "try": _try,
}


def needed_constants(expression: Expression) -> list[Call]:
    """Return the largest calls without columns that Spark evaluates for each row, or before any."""
    found: list[Call] = []

    def visit(part: Expression, needed: bool) -> bool:
        """Return whether a part reads no column, and collect constants inside it if it is needed."""
        if not isinstance(part, Call):
            return isinstance(part, Constant)
        null = any(isinstance(each, Constant) and each.value is None for each in part.arguments)
        inside = needed and not null and not part.function.startswith("try")
        most = 1 if part.function in CONDITIONALS else len(part.arguments)
        wanted = [inside and at < most for at in range(len(part.arguments))]
        constant = [visit(each, some) for each, some in zip(part.arguments, wanted, strict=True)]
        if all(constant):
            return True
        calls = zip(part.arguments, constant, wanted, strict=True)
        found.extend(each for each, is_constant, some in calls if is_constant and some and isinstance(each, Call))
        return False

    if visit(expression, True) and isinstance(expression, Call):
        found.append(expression)
    return found


def _greatest(build: Builder, *values: pl.Expr) -> pl.Expr:
    return _extreme(build, values, greatest=True)


def _least(build: Builder, *values: pl.Expr) -> pl.Expr:
    return _extreme(build, values, greatest=False)


def _extreme(build: Builder, values: tuple[pl.Expr, ...], *, greatest: bool) -> pl.Expr:
    """Return the extreme of the non-null values; among equal ones, the first."""
    best = values[0]
    for each in values[1:]:
        one, two = build.share(best), build.share(each)
        better = two > one if greatest else two < one
        best = pl.when(one.is_null() | better).then(two).otherwise(one)
    return best


def _compared(compare: Callable[[pl.Expr, pl.Expr], pl.Expr], of_rows: Kernel) -> Kernel:
    """Return a comparison; as in Spark, null is less than any other value of a struct's field, and equal to null."""

    def build(builder: Builder, left: pl.Expr, right: pl.Expr) -> pl.Expr:
        one, two = (each.type for each in builder.call.arguments)
        if not pa.types.is_struct(one):
            return compare(left, right)
        left, right = builder.share(left), builder.share(right)
        return pl.when(left.is_not_null() & right.is_not_null()).then(of_rows(left, right, one, two))

    return build


def _pairs(left: pl.Expr, right: pl.Expr, one: pa.DataType, two: pa.DataType) -> list[tuple[Any, ...]]:
    """Return both values of each field, and their types."""
    pairs = zip(one, two, strict=True)
    return [(left.struct.field(a.name), right.struct.field(b.name), a.type, b.type) for a, b in pairs]


def _same(left: pl.Expr, right: pl.Expr, one: pa.DataType, two: pa.DataType) -> pl.Expr:
    if not pa.types.is_struct(one):
        return left.eq_missing(right)
    both = [_same(*each) for each in _pairs(left, right, one, two)]
    return (left.is_null() & right.is_null()) | (left.is_not_null() & right.is_not_null() & pl.all_horizontal(both))


def _less(left: pl.Expr, right: pl.Expr, one: pa.DataType, two: pa.DataType) -> pl.Expr:
    first = left.is_null() & right.is_not_null()
    if not pa.types.is_struct(one):
        return first | (left < right).fill_null(value=False)
    less: pl.Expr = pl.lit(value=False)
    for each in reversed(_pairs(left, right, one, two)):
        less = _less(*each) | (_same(*each) & less)
    return first | (left.is_not_null() & right.is_not_null() & less)


COMPARISONS: Mapping[str, Kernel] = {
    "eq": _compared(lambda left, right: left == right, _same),
    "ne": _compared(lambda left, right: left != right, lambda *each: ~_same(*each)),
    "lt": _compared(lambda left, right: left < right, _less),
    "le": _compared(lambda left, right: left <= right, lambda left, right, one, two: ~_less(right, left, two, one)),
    "gt": _compared(lambda left, right: left > right, lambda left, right, one, two: _less(right, left, two, one)),
    "ge": _compared(lambda left, right: left >= right, lambda *each: ~_less(*each)),
    "eq_null_safe": lambda build, left, right: _same(left, right, *(each.type for each in build.call.arguments)),
    "is_null": lambda _, value: value.is_null(),
    "is_not_null": lambda _, value: value.is_not_null(),
    "isnan": lambda _, value: value.is_nan().fill_null(value=False),
    "greatest": _greatest,
    "least": _least,
}


def _get_field(build: Builder, struct: pl.Expr, _: pl.Expr) -> pl.Expr:
    name = build.constant(1, "the field's name")
    return pl.when(build.share(struct).is_not_null()).then(build.share(struct).struct.field(name))


def _get(build: Builder, array: pl.Expr, index: pl.Expr) -> pl.Expr:
    index = build.share(index)
    return array.list.get(pl.when(index >= 0).then(index), null_on_oob=True)


def _get_item(build: Builder, array: pl.Expr, index: pl.Expr) -> pl.Expr:
    array, index = build.share(array), build.share(index)
    outside = array.is_not_null() & ((index < 0) | (index >= array.list.len().cast(pl.Int64)))
    build.fail(outside, "the array has no such element", "use get(array, index), which gives null there")
    return _get(build, array, index)


def _element_at(build: Builder, array: pl.Expr, index: pl.Expr) -> pl.Expr:
    array, index = build.share(array), build.share(index)
    zero = (index == 0) & array.is_not_null()
    build.fail(zero, "element 0 is asked for", "count elements from 1, or from -1", lasting=True)
    size = array.list.len().cast(pl.Int64)
    build.fail(index.abs() > size, "the array is shorter", "use try_element_at(array, index), which gives null there")
    place = pl.when(index > 0).then(index - 1).when(index < 0).then(index)
    return array.list.get(place, null_on_oob=True)


def _contains(build: Builder, array: pl.Expr, value: pl.Expr) -> pl.Expr:
    array, value = build.share(array), build.share(value)
    found = build.share(array.list.contains(value))
    unsure = ~found & array.list.contains(pl.lit(None, dtype=polars_type(build.call.arguments[1].type)))
    return pl.when(array.is_not_null() & value.is_not_null() & ~unsure).then(found)


def _join(build: Builder, array: pl.Expr, *_: pl.Expr) -> pl.Expr:
    between = build.constant(1, "what to put between")
    instead = build.constant(2, "what to put for null") if len(build.call.arguments) > 2 else None
    if between is None or (instead is None and len(build.call.arguments) > 2):
        return build.nothing(pl.lit("")).cast(pl.String)
    array = build.share(array)
    kept = build.share(array.list.drop_nulls() if instead is None else array.list.eval(pl.element().fill_null(instead)))
    texts = kept.list.eval(pl.element().str.len_bytes().cast(pl.Int64)).list.sum()
    size = texts + kept.list.len().cast(pl.Int64) * len(between.encode())
    return pl.when(build.fits(size)).then(kept).list.join(between)


def _struct(build: Builder, *values: pl.Expr) -> pl.Expr:
    pairs = zip(values, build.type, strict=True)
    return pl.struct([each.alias(field.name) for each, field in pairs])


NESTED: Mapping[str, Kernel] = {
    "struct": _struct,
    "get_field": _get_field,
    "get": _get,
    "get_item": _get_item,
    "element_at": _element_at,
    "array_contains": _contains,
    "array_join": _join,
    "size": lambda _, array: array.list.len().cast(pl.Int32),
}


# --- arrays ---------------------------------------------------------------------------------------------------------

_MOST_ELEMENTS = 10_000_000
"""The greatest length of one sequence, and of all those of one batch."""

_USAGE = "two whole numbers with an optional step, or two times with an interval of days and time"


def _array(function: str, arguments: Sequence[Expression]) -> Expression:
    if not arguments or all(each.type == NULL for each in arguments):
        raise misfit(function, arguments, "values of one type, one of them not NULL")
    values = with_common_type(arguments)
    if pa.types.is_nested(values[0].type):
        raise misfit(function, arguments, "values that are not arrays, maps or structs")
    return Call(function, values, pa.list_(values[0].type))


def _sequence(function: str, arguments: Sequence[Expression]) -> Expression:
    if not 2 <= len(arguments) <= 3 or all(each.type == NULL for each in arguments[:2]):
        raise misfit(function, arguments, _USAGE)
    ends, steps = arguments[:2], arguments[2:]
    if all(is_integral(each.type) or each.type == NULL for each in arguments):
        values = with_common_type(arguments)
        return Call(function, values, pa.list_(values[0].type))
    kind = common([each.type for each in ends])
    made = [implicit(each, kind) for each in ends]
    step = steps[0] if steps else Constant(Days(1), DURATION)
    if not is_time(kind) or None in made or step.type not in (DURATION, NULL):
        hint = "an interval of months has no fixed length: add_months(d, n) over whole numbers n"
        raise misfit(function, arguments, _USAGE, hint if step.type not in (DURATION, LONG) else "")
    found = implicit(step, DURATION)
    assert found is not None
    return Call(function, (*(each for each in made if each is not None), found), pa.list_(kind))


SEQUENCE_RULES: Mapping[str, Rule] = {"array": _array, "sequence": _sequence, "generate_series": _sequence}


def _from_to(build: Builder, start: pl.Expr, stop: pl.Expr, *steps: pl.Expr) -> pl.Expr:
    """Return the numbers or times from one to another. Towards the wrong side, Spark fails, and a series is empty."""
    kind, spark = build.type.value_type, build.call.function == "sequence"
    first, last = (build.share(_numbers(each, kind)) for each in (start, stop))
    if steps:
        step = build.share(steps[0].cast(pl.Int64))
    else:
        step = pl.when(first > last).then(-1).otherwise(1) if spark else pl.lit(1, dtype=pl.Int64)
        step = build.share(step.cast(pl.Int64))
    there = pl.all_horizontal(each.is_not_null() for each in (first, last, step))
    ahead = pl.when(step > 0).then(first <= last).otherwise(first >= last)
    still = (step == 0) & (first == last if spark else pl.lit(value=False))
    if kind == DATE:
        build.fail(there & (step % DAY != 0), "a step between dates is no number of days", "cast them to TIMESTAMP")
    if spark:
        wrong = ~(((step != 0) & ahead) | still)
        build.fail(there & wrong, "the step leads away from the end", "leave the step out, or turn its sign")
    else:
        build.fail(there & (step == 0), "the step is 0", "give another step")
    count = (last.cast(pl.Float64) - first.cast(pl.Float64)) / pl.when(step != 0).then(step).otherwise(1)
    long = count > _MOST_ELEMENTS
    hint = f"at most {_MOST_ELEMENTS:,} elements are possible"
    build.fail(there & long, "the sequence is too long", hint, lasting=True)
    whole = (step % DAY == 0) if kind == DATE else pl.lit(value=True)
    known = build.share(there & ~long & whole & (still | (step != 0)) & (ahead | pl.lit(value=not spark)))
    dtype = polars_type(build.type)
    made = on_series(_ranges, first, last, step, known, dtype=pl.List(pl.Int64))
    if kind == DATE:
        made = made.list.eval((pl.element() // DAY).cast(pl.Int32))
    return pl.when(known).then(made.cast(dtype))


def _numbers(value: pl.Expr, kind: pa.DataType) -> pl.Expr:
    return value.cast(pl.Int32).cast(pl.Int64) * DAY if kind == DATE else value.cast(pl.Int64)


def _ranges(first: pl.Series, last: pl.Series, step: pl.Series, known: pl.Series) -> pl.Series:
    """Return the numbers from one to another by a step; none where they are not known."""
    mask = known.fill_null(value=False).to_numpy()
    begins, ends, by = (each.fill_null(1).to_numpy() for each in (first, last, step))
    by = np.where(mask & (by != 0), by, 1)
    low, high = np.where(by > 0, (begins, ends), (ends, begins))
    # Of 64 bits without a sign, since the numbers may be farther apart than the greatest one.
    steps = (high.view(np.uint64) - low.view(np.uint64)) // np.abs(by).view(np.uint64)
    counts = np.where(mask & (low <= high), steps + np.uint64(1), np.uint64(0)).astype(np.int64)
    total = int(counts.sum())
    if total > _MOST_ELEMENTS:
        raise QueryError(
            f"the sequences of {len(counts):,} rows have {total:,} elements",
            expected=f"at most {_MOST_ELEMENTS:,} in one batch",
            hint="make shorter sequences, or shorter batches",
        )
    offsets = np.append(0, np.cumsum(counts))
    at = np.arange(total) - np.repeat(offsets[:-1], counts)
    values = np.repeat(begins, counts) + at * np.repeat(by, counts)
    found = pl.from_arrow(pa.LargeListArray.from_arrays(offsets, pa.array(values, pa.int64())))
    assert isinstance(found, pl.Series)
    return found


SEQUENCES: Mapping[str, Kernel] = {
    "array": lambda _, *values: pl.concat_list(values),
    "sequence": _from_to,
    "generate_series": _from_to,
}
