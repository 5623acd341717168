"""Aggregates as a columnar algebra: lift rows, combine states, retract them where possible, lower them to results.

The most common are also at the top of the package: ``us.count()``. ``sum``, ``min`` and ``max`` have the names of
built-in functions, as in PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .approximate import approx_count_distinct, heavy_hitters, median, quantile
    from .custom import aggregate
    from .functions import (
        any_value,
        avg,
        collect,
        count,
        first,
        last,
        stddev_pop,
        stddev_samp,
        var_pop,
        var_samp,
    )
    from .functions import max_ as max  # noqa: A004 PySpark's names
    from .functions import min_ as min  # noqa: A004 PySpark's names
    from .functions import sum_ as sum  # noqa: A004 PySpark's names

# Fetched when asked for: Spark's workers import this package for the algebra alone.
_HOMES = {
    "aggregate": ".custom",
    "any_value": ".functions",
    "approx_count_distinct": ".approximate",
    "avg": ".functions",
    "collect": ".functions",
    "count": ".functions",
    "first": ".functions",
    "heavy_hitters": ".approximate",
    "last": ".functions",
    "max": ".functions",
    "median": ".approximate",
    "min": ".functions",
    "quantile": ".approximate",
    "stddev_pop": ".functions",
    "stddev_samp": ".functions",
    "sum": ".functions",
    "var_pop": ".functions",
    "var_samp": ".functions",
}

# Defined under names of their own: their module uses the built-in functions.
_BUILT_IN = {"max": "max_", "min": "min_", "sum": "sum_"}

__all__ = [
    "aggregate",
    "any_value",
    "approx_count_distinct",
    "avg",
    "collect",
    "count",
    "first",
    "heavy_hitters",
    "last",
    "max",
    "median",
    "min",
    "quantile",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), _BUILT_IN.get(name, name))
