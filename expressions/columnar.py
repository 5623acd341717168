"""Building of expressions: one of Polars for a function's values, and one for each way in which it can fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ..conf.errors import SchemaError
from .kinds import DATE, DURATION, LOCAL_TIMESTAMP, MONTHS, TIMESTAMP, is_decimal, spark_name
from .nodes import Call, Expression


@dataclasses.dataclass(frozen=True)
class RowFailure:
    """A way in which a value can fail.

    A failure counts only in rows that need the value: a CASE adds its conditions to the failures of its branches.
    """

    where: pl.Expr  # true in rows that fail; never null
    of: Expression  # the expression that fails
    reason: str
    hint: str = ""  # a remedy for the user
    lasting: bool = False  # ``try_`` forms fail too, as in Spark, or by a limit that Spark does not have


@dataclasses.dataclass(frozen=True)
class Value:
    """The values of an expression, null where it fails, and its failures."""

    values: pl.Expr
    failures: tuple[RowFailure, ...] = ()

    @property
    def constant(self) -> bool:
        """True if it reads no column."""
        return not self.values.meta.root_names()

    @property
    def null(self) -> bool:
        """True if it is null in all rows and cannot fail."""
        return self.constant and not self.failures and pl.select(self.values).item() is None


def when_needed(failures: Iterable[RowFailure], needed: pl.Expr) -> tuple[RowFailure, ...]:
    """Restrict failures to some rows; null in `needed` is false."""
    needed = needed.fill_null(value=False)
    return tuple(dataclasses.replace(each, where=needed & each.where) for each in failures)


MOST_BYTES = 1 << 20
"""Limit of a text that a function makes longer, because a row is held many times."""

MOST_BYTES_OF_ALL = 1 << 30
"""Limit of the values of one step, so that texts that double in each step cannot exhaust the memory."""


class Stages:
    """Columns that several expressions share and that are computed once, in order of dependency."""

    def __init__(self) -> None:
        self._stage_of: dict[str, int] = {}
        self.columns: list[list[pl.Expr]] = []
        self._bytes: pl.Expr = pl.lit(0, dtype=pl.Int64)

    def grown(self, size: pl.Expr) -> pl.Expr:
        """Add the sizes of a function's values, and return the bytes that all functions make so far of all rows."""
        self._bytes = self.shared(self._bytes + size.sum())
        return self._bytes

    def shared(self, values: pl.Expr) -> pl.Expr:
        """Return an expression that is computed once for all of its uses."""
        names = values.meta.root_names()
        if not names or values.meta.is_column_selection():
            return values
        stage = max((self._stage_of.get(name, -1) for name in names), default=-1) + 1
        name = f"__shared_{len(self._stage_of)}"
        self._stage_of[name] = stage
        if stage == len(self.columns):
            self.columns.append([])
        self.columns[stage].append(values.alias(name))
        return pl.col(name)


class Builder:
    """A kernel's context to build one call. Operands are the values of the call's arguments."""

    def __init__(self, call: Call, operands: Sequence[Value], stages: Stages) -> None:
        self.call = call
        self.type = call.type
        self.failures: list[RowFailure] = []
        self.unread = False
        self._operands = operands
        self._stages = stages

    def share(self, values: pl.Expr) -> pl.Expr:
        """Return an expression that is computed once for all of its uses."""
        return self._stages.shared(values)

    def fail(self, where: pl.Expr, reason: str, hint: str = "", *, lasting: bool = False) -> None:
        """Declare that the call fails in some rows, where its value has to be null. Null in `where` is false."""
        self.failures.append(RowFailure(where.fill_null(value=False), self.call, reason, hint, lasting))

    def fits(self, size: pl.Expr) -> pl.Expr:
        """Declare how many bytes the text of a row will have; return a mask of the rows for which it may be made.

        Other rows fail before their text is made.
        """
        size = self.share(size.cast(pl.Int64))
        short = size <= MOST_BYTES
        few = self._stages.grown(pl.when(short).then(size)) <= MOST_BYTES_OF_ALL
        self.fail(~short, f"the text would have more than {MOST_BYTES} bytes", "make a shorter one", lasting=True)
        reason = f"the texts of all rows would have more than {MOST_BYTES_OF_ALL} bytes"
        self.fail(short & ~few, reason, "make shorter texts, or shorter batches", lasting=True)
        return self.share(short & few)

    def strict(self, values: pl.Expr, reason: str, hint: str = "") -> pl.Expr:
        """Declare that the call fails where it is null and no operand is; return the values."""
        values = self.share(values)
        self.fail(self.unexpected_null(values), reason, hint)
        return values

    def nothing(self, values: pl.Expr) -> pl.Expr:
        """Return nulls instead of values. No operand is evaluated, so none can fail."""
        self.unread = True
        return pl.when(pl.lit(value=False)).then(values)

    def unexpected_null(self, values: pl.Expr) -> pl.Expr:
        """Return a mask of rows in which a value is null and no operand is."""
        there = [each.values.is_not_null() for each in self._operands if not each.constant]
        if any(each.constant and pl.select(each.values).item() is None for each in self._operands):
            return pl.lit(value=False)
        return pl.all_horizontal(values.is_null(), *there)

    def constant(self, index: int, what: str) -> Any:
        """Return the value of a constant argument; raise SchemaError if it depends on a row."""
        value = self._operands[index]
        if not value.constant:
            raise SchemaError(
                f"{what} is {self.call.arguments[index]}, which differs by row",
                expected=f"a constant: {self.call.function} of Spark and of Polars are the same only for one",
            )
        return pl.select(value.values).item()


Kernel = Callable[..., pl.Expr]
"""Builds the values' expression from a Builder and the operands' expressions."""


@lru_cache(maxsize=4096)
def polars_type(dtype: pa.DataType) -> pl.DataType:
    """Return the Polars type for values of an Arrow type."""
    if dtype == MONTHS:
        raise SchemaError("an interval of months alone is not a value", hint="add it to a time")
    return pl.Series(pl.from_arrow(pa.array([], dtype))).dtype


def literal(value: Any, dtype: pa.DataType) -> pl.Expr:
    """Return a Python value as a constant; for an interval of months, its months only."""
    if dtype == MONTHS:
        return pl.lit(None if value is None else int(value[0]), dtype=pl.Int32)
    target = polars_type(dtype)
    if value is None:
        return pl.lit(None, dtype=target)
    if dtype in (DATE, TIMESTAMP, LOCAL_TIMESTAMP, DURATION) or is_decimal(dtype):
        return of_series(pl.Series(pl.from_arrow(pa.array([value], dtype))))
    if isinstance(target, pl.List):
        return pl.lit(pl.Series([list(value)], dtype=target))
    return pl.lit(value, dtype=target)


def of_series(values: pl.Series) -> pl.Expr:
    """Return the only value of a series as an expression."""
    dtype = values.dtype
    if isinstance(dtype, pl.List):
        return pl.lit(values).first()
    if dtype.is_temporal():  # Python's times end with the year 9999
        return pl.lit(values.to_physical().item(), dtype=values.to_physical().dtype).cast(dtype)
    return pl.lit(values.item(), dtype=dtype)


def as_constant(value: Value, expression: Call) -> Value:
    """Evaluate an expression without columns now."""
    masks = [each.where.alias(str(at)) for at, each in enumerate(value.failures)]
    found = pl.select(value.values.alias("value"), *masks)
    dtype = polars_type(expression.type)
    if found.schema["value"] != dtype:
        raise AssertionError(f"{expression} of {spark_name(expression.type)} came as {found.schema['value']}")
    failures = [each for at, each in enumerate(value.failures) if found[str(at)].item()]
    return Value(of_series(found["value"]), tuple(dataclasses.replace(f, where=pl.lit(value=True)) for f in failures))


def on_series(function: Callable[..., pl.Series], *values: pl.Expr, dtype: pl.DataType | type[pl.DataType]) -> pl.Expr:
    """Return an expression of a function that maps series of one length to a series of that length."""

    def run(series: Sequence[pl.Series]) -> pl.Series:
        return function(*aligned(series))

    return pl.map_batches(list(values), run, return_dtype=dtype)


def aligned(series: Sequence[pl.Series]) -> list[pl.Series]:
    """Extend constants to the length of the other series."""
    length = max(map(len, series))
    return [each if len(each) == length else each.new_from_index(0, length) for each in series]


def flat_bytes(values: pl.Series) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the concatenated bytes of all values, and the offsets of their beginnings and of the end."""
    array: Any = values.fill_null(b"").rechunk().to_arrow().cast(pa.large_binary())
    ends = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return flat, ends


def on_arrays(
    function: Callable[..., npt.NDArray[Any]], *values: pl.Expr, dtype: pl.DataType | type[pl.DataType]
) -> pl.Expr:
    """Return a function of arrays as an expression, null where an operand is; the function gets zeros for nulls."""

    def run(*series: pl.Series) -> pl.Series:
        with np.errstate(all="ignore"):
            found = function(*(each.fill_null(0).to_numpy() for each in series))
        made = pl.Series(found, dtype=dtype)
        for each in series:
            if each.null_count():
                made = made.set(each.is_null(), None)
        return made

    return on_series(run, *values, dtype=dtype)


def quotient(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Return the quotient of doubles. For equal divisors, Polars would multiply by their inverse, which is inexact."""
    return on_arrays(np.divide, left, right, dtype=pl.Float64)
