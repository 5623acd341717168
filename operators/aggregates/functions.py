"""The exact aggregates. Each takes the names of columns and describes its computation; types come with the rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...conf.errors import OptionError
from . import results
from .checks import check_order, check_ordered, names_of, number_type, type_of
from .numbers import Count, ExactSum, FloatSum, Squares
from .parts import Aggregate, Part, Plan
from .selections import Collected, Extreme, Outermost

__all__ = [
    "any_value",
    "avg",
    "collect",
    "count",
    "first",
    "last",
    "max_",
    "min_",
    "stddev_pop",
    "stddev_samp",
    "sum_",
    "var_pop",
    "var_samp",
]


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
    rows. Sums of doubles are right to the last bit unless they cancel to less than some 2^-45 of their largest summand,
    and stay so when rows are retracted.

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
    text = f"sum({column})"

    def plan(schema: pa.Schema) -> Plan:
        kind = number_type(schema, column, text)
        rows = Count(column)
        if pa.types.is_floating(kind):
            doubles = FloatSum(column)
            return Plan(
                (rows, doubles), pa.float64(), lambda state: results.float_sum(state[rows.key], state[doubles.key])
            )
        total = ExactSum(column, kind)
        result = pa.int64() if pa.types.is_integer(kind) else pa.decimal128(min(38, kind.precision + 10), kind.scale)
        return Plan(
            (rows, total), result, lambda state: results.exact_sum(state[rows.key], state[total.key], result, text)
        )

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
    text = f"avg({column})"

    def plan(schema: pa.Schema) -> Plan:
        kind = number_type(schema, column, text)
        rows = Count(column)
        if pa.types.is_floating(kind):
            doubles = FloatSum(column)
            return Plan(
                (rows, doubles), pa.float64(), lambda state: results.average(state[rows.key], state[doubles.key])
            )
        total = ExactSum(column, kind)
        if pa.types.is_integer(kind):
            return Plan(
                (rows, total), pa.float64(), lambda state: results.exact_average(state[rows.key], state[total.key])
            )
        result = pa.decimal128(min(38, kind.precision + 4), min(38, kind.scale + 4))
        return Plan(
            (rows, total),
            result,
            lambda state: results.decimal_average(state[rows.key], state[total.key], result, text),
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
    >>> results = stream.window("1 minute").agg(variance=us.var_pop("speed"))
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
    >>> results = stream.window("1 minute").agg(variance=us.var_samp("speed"))
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
    >>> results = stream.window("1 minute").agg(deviation=us.stddev_pop("speed"))
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
    >>> results = stream.window("1 minute").agg(deviation=us.stddev_samp("speed"))
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
    >>> results = stream.window("1 minute").agg(some=us.any_value("speed"))
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
    >>> results = stream.window("1 minute").agg(began=us.first("speed", by="timestamp"))
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
    >>> results = stream.window("1 minute").agg(now=us.last("speed", by="timestamp"))
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
    >>> results = stream.window("1 minute").agg(speeds=us.collect("speed", by="timestamp", limit=100))
    """
    order = names_of(by)
    text = f"collect({column}; by {', '.join(order)}; limit {limit})"
    if limit < 1:
        raise OptionError(f"limit of {text} is {limit}", expected="a whole number from 1 on")

    def plan(schema: pa.Schema) -> Plan:
        kind = type_of(schema, column, text)
        check_order(schema, order, text)
        part = Collected(column, order, schema, limit)
        return Plan((part,), pa.list_(kind), lambda state: state[part.key][0])

    return Aggregate(text, plan)


def _spread(text: str, column: str, *, sample: bool, root: bool) -> Aggregate:
    def plan(schema: pa.Schema) -> Plan:
        number_type(schema, column, text)
        rows, total, squares = Count(column), FloatSum(column), Squares(column)
        parts: tuple[Part, ...] = (rows, total, squares)
        return Plan(
            parts,
            pa.float64(),
            lambda state: results.spread(*(state[part.key] for part in parts), sample=sample, root=root),
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
