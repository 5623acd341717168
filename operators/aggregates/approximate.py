"""Approximate aggregates, each with a known error. Exact versions would have to keep every value."""

from __future__ import annotations

import math

import pyarrow as pa

from ...conf.errors import OptionError, SchemaError
from . import quantiles, sketches
from .checks import type_of
from .keys import has_keys
from .parts import Aggregate, Plan

__all__ = ["approx_count_distinct", "heavy_hitters", "median", "quantile"]


def approx_count_distinct(column: str, *, error: float = 0.02) -> Aggregate:
    """Count the different values approximately, by HyperLogLog.

    The result is a BIGINT; it is 0 for a group without values.

    Parameters
    ----------
    column : str
        Integers, decimals, floats, strings, booleans, dates, times or timestamps.
    error : float
        The relative standard deviation: two of three results are within it, 95 % within twice as much. A group takes up
        to (1.04 / error)^2 bytes, rounded up to a power of two: 4 kB for 0.02; and is exact while it has less than a
        tenth as many values.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(different=us.approx_count_distinct("speed"))
    """
    text = f"approx_count_distinct({column})"
    lg_k = _power(1.04**2 / error**2 if error > 0 else math.inf, text, error, 7, 21, "0.001 to 0.09")

    def plan(schema: pa.Schema) -> Plan:
        _sketchable(schema, column, text)
        part = sketches.DistinctSketch(column, lg_k)
        return Plan((part,), pa.int64(), lambda state: sketches.distinct_counts(state[part.key], lg_k))

    return Aggregate(text, plan)


def heavy_hitters(column: str, *, limit: int = 10, error: float = 0.01) -> Aggregate:
    """Find the most frequent values, by a Misra-Gries sketch.

    The result is ``ARRAY<STRUCT<item, count BIGINT, error BIGINT>>``, most frequent first. An item's true count is
    between ``count - error`` and ``count``. No error is more than `error` times the group's rows, and the sketch holds
    each value that is more frequent than that. With fewer different values than 2.6 / `error`, counts are exact.

    Parameters
    ----------
    column : str
        Integers, decimals, floats, strings, booleans, dates, times or timestamps.
    limit : int
        The most items that a result has.
    error : float
        As above. The library guarantees this bound; it is no standard deviation.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(busiest=us.heavy_hitters("timestamp", limit=3))
    """
    text = f"heavy_hitters({column})"
    lg_size = _power(3.5 / error if error > 0 else math.inf, text, error, 3, 26, "1e-7 to 0.4")
    if limit < 1:
        raise OptionError(f"limit of {text} is {limit}", expected="a whole number from 1 on")

    def plan(schema: pa.Schema) -> Plan:
        kind = _sketchable(schema, column, text)
        part = sketches.FrequentItems(column, lg_size)
        return Plan((part,), sketches.heavy_type(kind), lambda state: sketches.heavy(state[part.key], limit, kind))

    return Aggregate(text, plan)


def quantile(column: str, probability: float, *, error: float = 0.01) -> Aggregate:
    """Find an approximate quantile: the least value that at least this share of the values do not exceed.

    The result has the column's type and is one of its values.

    Parameters
    ----------
    column : str
        Integers, decimals of up to 18 digits, floats (NaN is the greatest), dates, times or timestamps.
    probability : float
        From 0 to 1.
    error : float
        The error of the rank: with 99 % probability, the result is the quantile of a probability no further than this
        away. A group takes up to about 8 / `error` values of 9 bytes, 7 kB for 0.01. It is exact while it has no more
        than 2.6 / `error` values. All quantiles of a column with one `error` share their state.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(p99=us.quantile("speed", 0.99))
    """
    text = f"quantile({column}, {probability:g})"
    if not 0 <= probability <= 1:
        raise OptionError(f"{probability} is no probability", expected="a number from 0 to 1")
    if not 1e-5 <= error <= 0.1:
        raise OptionError(f"error of {text} is {error}", expected="1e-5 to 0.1")
    k = math.ceil((2.296 / error) ** (1 / 0.9723))  # the library's fit of the single-sided error at 99 %

    def plan(schema: pa.Schema) -> Plan:
        kind = type_of(schema, column, text)
        if not has_keys(kind):
            raise SchemaError(
                f"{text}: {column} is {kind}",
                expected="a column of integers, floats, dates, times, timestamps or decimals of up to 18 digits",
                hint="cast it, for example to DOUBLE",
            )
        part = quantiles.QuantileSketch(column, k)
        return Plan((part,), kind, lambda state: quantiles.quantiles_of(state[part.key], probability, kind))

    return Aggregate(text, plan)


def median(column: str, *, error: float = 0.01) -> Aggregate:
    """Find the approximate median, ``quantile(column, 0.5)``: one of the values, the lower one of two in the middle.

    Parameters
    ----------
    column, error
        As for :func:`quantile`.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(middle=us.median("speed"))
    """
    return quantile(column, 0.5, error=error)


def _sketchable(schema: pa.Schema, column: str, text: str) -> pa.DataType:
    kind = type_of(schema, column, text)
    if not sketches.sketchable(kind):
        raise SchemaError(
            f"{text}: {column} is {kind}",
            expected="a column of numbers, strings, booleans, dates, times or timestamps",
            hint="cast it to STRING, for example with hex() or to_json()",
        )
    sketches.library()  # here rather than in the first batch
    return kind


def _power(size: float, text: str, error: float, least: int, most: int, allowed: str) -> int:
    """Return the power of two that suffices for an error."""
    power = math.ceil(math.log2(size)) if 0 < size < math.inf else most + 1
    if power > most:
        raise OptionError(f"error of {text} is {error}", expected=allowed)
    return max(power, least)
