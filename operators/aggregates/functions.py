"""The exact aggregates. Each takes the names of columns and describes its computation; types come with the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import OptionError
from ...core.rows.exact_integers import Int64s
from . import exact, floats
from .numbers import SCALE, Count, ExactSum, FloatSum, Squares, float_pair
from .parts import (
    Aggregate,
    Extreme,
    FirstValues,
    Outermost,
    Plan,
    State,
    StatePart,
    check_order,
    check_ordered,
    names_of,
    number_type,
    type_of,
)

Doubles = npt.NDArray[np.float64]


def where(mask: npt.NDArray[np.bool_], values: pa.Array | Doubles) -> pa.Array:
    """Return the values, or null where the mask is not set."""
    array = pa.array(values) if isinstance(values, np.ndarray) else values
    return pc.if_else(pa.array(mask), array, pa.scalar(None, array.type))


def exact_sum(count: State, total: State, kind: pa.DataType, text: str) -> pa.Array:
    """Return a sum of integers or decimals; null for a group without values."""
    return where(_counts(count) > 0, _fitting(total[0], kind, text))


def exact_average(count: State, total: State) -> pa.Array:
    """Return the mean of integers."""
    rows = _counts(count)
    return where(rows > 0, exact.doubles(exact.limbs_of(total[0])) / np.maximum(rows, 1))


def decimal_average(count: State, total: State, kind: pa.DataType, text: str) -> pa.Array:
    """Return the mean of decimals, rounded half away from zero."""
    rows, scale = _counts(count), total[0].type.scale
    if len(rows) and int(rows.max()) >= 1 << 31:
        raise NotImplementedError(f"{text} of {rows.max()} rows in one group: at most 2^31 - 1 can be divided by")
    limbs = exact.divided(exact.limbs_of(total[0]), 10 ** (kind.scale - scale), np.maximum(rows, 1))
    return where(rows > 0, _fitting(exact.packed(limbs, pa.decimal256(76, kind.scale)), kind, text))


def float_sum(count: State, total: State) -> pa.Array:
    """Return a sum of doubles."""
    return where(_counts(count) > 0, _finite_or_not(total))


def average(count: State, total: State) -> pa.Array:
    """Return the mean of doubles."""
    rows = _counts(count)
    return where(rows > 0, _finite_or_not(total) / np.maximum(rows, 1))


def spread(count: State, total: State, squares: State, sample: bool, root: bool) -> pa.Array:
    """Return the variance or standard deviation, of the population or estimated from a sample."""
    rows = _counts(count)
    huge = squares[2].to_numpy() > 0
    some = np.maximum(rows, 1).astype(np.float64)
    high, low = (np.where(huge, 0, part) / SCALE for part in float_pair(total))
    # Σ (v - mean)² = Σ v² - (Σ v)² / n: the difference that doubles cannot take, but pairs can.
    pair = floats.minus(float_pair(squares), floats.times(floats.over((high, low), some), (high, low)))
    about = np.maximum(pair[0] + pair[1], 0.0)
    about = np.where(huge, np.inf, about)
    about = np.where(rows == 1, 0.0, about)
    about = np.where(_specials(total).any(axis=0), np.nan, about)
    about = about / (np.maximum(rows - 1, 1) if sample else some)
    return where(rows > sample, np.sqrt(about) if root else about)


def _counts(count: State) -> Int64s:
    return count[0].to_numpy()


def _specials(total: State) -> npt.NDArray[np.bool_]:
    """Return two masks of a FloatSum: groups with positive, and with negative, infinities."""
    return np.stack([total[2].to_numpy() > 0, total[3].to_numpy() > 0])


def _finite_or_not(total: State) -> Doubles:
    high, low = float_pair(total)
    positive, negative = _specials(total)
    with np.errstate(over="ignore"):
        plain = (high + low) / SCALE  # beyond the greatest double it is infinite, as in Spark
    return np.select([positive & negative, positive, negative], [np.nan, np.inf, -np.inf], plain)


def _fitting(sums: pa.Array, kind: pa.DataType, text: str) -> pa.Array:
    try:
        return sums.cast(kind)
    except pa.ArrowInvalid:
        exact.overflow(text, kind, max(sums.to_pylist(), key=abs))


def count(column: str | None = None) -> Aggregate:
    """Count the rows or, with a column, its values that are not null.

    The result is a BIGINT; it is 0 for a group without rows.

    Parameters
    ----------
    column
        Its name; None for all rows.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(rows=us.count())
    """

    def plan(schema: pa.Schema) -> Plan:
        if column is not None:
            type_of(schema, column, text)
        part = Count(column)
        return Plan((part,), pa.int64(), lambda state: state[part.key][0])

    text = f"count({column or '*'})"
    return Aggregate(text, plan)


def sum_(column: str) -> Aggregate:
    """Add the values up. The result is null for a group without values.

    Its type is BIGINT for integers, DECIMAL(p + 10, s) for DECIMAL(p, s), and DOUBLE for floats.

    Integers and decimals are added exactly, and a sum that its type cannot hold is an error, whatever the order of the
    rows. Sums of doubles are right to the last bit, also after retractions, unless they cancel to less than about 2^-45
    of their largest summand.

    Parameters
    ----------
    column
        Its name.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(total=us.sum("speed"))
    """
    return sum_of(column, f"sum({column})")


def sum_of(column: str, text: str) -> Aggregate:
    """Return the :func:`sum_` of a column; errors name it by `text`."""

    def plan(schema: pa.Schema) -> Plan:
        kind = number_type(schema, column, text)
        rows = Count(column)
        if pa.types.is_floating(kind):
            doubles = FloatSum(column)
            return Plan((rows, doubles), pa.float64(), lambda state: float_sum(state[rows.key], state[doubles.key]))
        total = ExactSum(column, kind)
        result = pa.int64() if pa.types.is_integer(kind) else pa.decimal128(min(38, kind.precision + 10), kind.scale)
        return Plan((rows, total), result, lambda state: exact_sum(state[rows.key], state[total.key], result, text))

    return Aggregate(text, plan)


def avg(column: str) -> Aggregate:
    """Compute the mean of the values. The result is null for a group without values.

    Its type is DOUBLE for integers and floats, and DECIMAL(p + 4, s + 4) for DECIMAL(p, s).

    Parameters
    ----------
    column
        Its name.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(mean=us.avg("speed"))
    """
    return avg_of(column, f"avg({column})")


def avg_of(column: str, text: str) -> Aggregate:
    """Return the :func:`avg` of a column; errors name it by `text`."""

    def plan(schema: pa.Schema) -> Plan:
        kind = number_type(schema, column, text)
        rows = Count(column)
        if pa.types.is_floating(kind):
            doubles = FloatSum(column)
            return Plan((rows, doubles), pa.float64(), lambda state: average(state[rows.key], state[doubles.key]))
        total = ExactSum(column, kind)
        if pa.types.is_integer(kind):
            return Plan((rows, total), pa.float64(), lambda state: exact_average(state[rows.key], state[total.key]))
        result = pa.decimal128(min(38, kind.precision + 4), min(38, kind.scale + 4))
        return Plan(
            (rows, total),
            result,
            lambda state: decimal_average(state[rows.key], state[total.key], result, text),
        )

    return Aggregate(text, plan)


def var_pop(column: str) -> Aggregate:
    """Compute the population variance of the values. The result is a DOUBLE; it is null for a group without values.

    Parameters
    ----------
    column
        Its name.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(variance=us.aggregates.var_pop("speed"))
    """
    return _spread(f"var_pop({column})", column, sample=False, root=False)


def var_samp(column: str) -> Aggregate:
    """Compute the sample variance: the variance of the population that the values are a sample of.

    The result is a DOUBLE; it is null for a group of fewer than two values.

    Parameters
    ----------
    column
        Its name.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(variance=us.aggregates.var_samp("speed"))
    """
    return _spread(f"var_samp({column})", column, sample=True, root=False)


def stddev_pop(column: str) -> Aggregate:
    """Compute the population standard deviation, the square root of :func:`var_pop`.

    Parameters
    ----------
    column
        Its name.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(deviation=us.aggregates.stddev_pop("speed"))
    """
    return _spread(f"stddev_pop({column})", column, sample=False, root=True)


def stddev_samp(column: str) -> Aggregate:
    """Compute the sample standard deviation, the square root of :func:`var_samp`.

    Parameters
    ----------
    column
        Its name.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(deviation=us.aggregates.stddev_samp("speed"))
    """
    return _spread(f"stddev_samp({column})", column, sample=True, root=True)


def min_(column: str) -> Aggregate:
    """Find the least value, of the column's type.

    NaN is greater than any number. Strings and binaries are compared by their bytes.

    Parameters
    ----------
    column
        Its name.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(least=us.min("speed"))
    """
    return _extreme(f"min({column})", column, greatest=False)


def max_(column: str) -> Aggregate:
    """Find the greatest value, of the column's type.

    NaN is greater than any number. Strings and binaries are compared by their bytes.

    Parameters
    ----------
    column
        Its name.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(top=us.max("speed"))
    """
    return _extreme(f"max({column})", column, greatest=True)


def any_value(column: str) -> Aggregate:
    """Return any one value of the column; null only if there is none.

    It is the greatest value, so that it does not depend on the order of rows.

    Parameters
    ----------
    column
        Its name.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(some=us.aggregates.any_value("speed"))
    """
    return _extreme(f"any_value({column})", column, greatest=True)


def first(column: str, by: str | Sequence[str], *, ignore_nulls: bool = False) -> Aggregate:
    """Return the value of the first row.

    Parameters
    ----------
    column : str
        Of any type.
    by : str or sequence of str
        The columns that order the rows: usually the time and the arrival sequence. If two rows are equal in all of
        these columns, either may be taken.
    ignore_nulls : bool
        True takes the first value that is not null; otherwise the result is null if the first row's value is.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(began=us.aggregates.first("speed", by="timestamp"))
    """
    return _outermost("first", column, by, last=False, ignore_nulls=ignore_nulls)


def last(column: str, by: str | Sequence[str], *, ignore_nulls: bool = False) -> Aggregate:
    """Return the value of the last row: like :func:`first`, from the other end.

    Parameters
    ----------
    column, by, ignore_nulls
        As for :func:`first`.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(now=us.aggregates.last("speed", by="timestamp"))
    """
    return _outermost("last", column, by, last=True, ignore_nulls=ignore_nulls)


def collect(column: str, by: str | Sequence[str], *, limit: int) -> Aggregate:
    """Collect the first values that are not null, as an array in their order. It is empty for a group without values.

    Parameters
    ----------
    column : str
        Of any type.
    by : str or sequence of str
        The order, as for :func:`first`.
    limit : int
        How many are kept. To find out whether there were more, add ``count(column)``.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(speeds=us.aggregates.collect("speed", by="timestamp", limit=100))
    """
    order = names_of(by)
    text = f"collect({column}; by {', '.join(order)}; limit {limit})"
    if limit < 1:
        raise OptionError(f"limit of {text} is {limit}", expected="a whole number from 1 on")

    def plan(schema: pa.Schema) -> Plan:
        kind = type_of(schema, column, text)
        check_order(schema, order, text)
        part = FirstValues(column, order, schema, limit)
        return Plan((part,), pa.list_(kind), lambda state: state[part.key][0])

    return Aggregate(text, plan)


def _spread(text: str, column: str, *, sample: bool, root: bool) -> Aggregate:
    def plan(schema: pa.Schema) -> Plan:
        number_type(schema, column, text)
        rows, total, squares = Count(column), FloatSum(column), Squares(column)
        parts: tuple[StatePart, ...] = (rows, total, squares)
        return Plan(
            parts,
            pa.float64(),
            lambda state: spread(*(state[part.key] for part in parts), sample=sample, root=root),
        )

    return Aggregate(text, plan)


def _extreme(text: str, column: str, *, greatest: bool) -> Aggregate:
    def plan(schema: pa.Schema) -> Plan:
        kind = type_of(schema, column, text)
        check_ordered(kind, column, text)
        part = Extreme(column, kind, greatest)
        return Plan((part,), kind, lambda state: state[part.key][0])

    return Aggregate(text, plan)


def _outermost(function: str, column: str, by: str | Sequence[str], *, last: bool, ignore_nulls: bool) -> Aggregate:
    order = names_of(by)
    text = f"{function}({column}; by {', '.join(order)})"

    def plan(schema: pa.Schema) -> Plan:
        kind = type_of(schema, column, text)
        check_order(schema, order, text)
        part = Outermost(column, order, schema, last, ignore_nulls)
        return Plan((part,), kind, lambda state: state[part.key][0])

    return Aggregate(text, plan)
