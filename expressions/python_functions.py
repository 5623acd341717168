"""Functions in Python over Arrow arrays: their import, their calls in expressions, and the evaluation of these."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

import polars as pl
import pyarrow as pa

from ..conf.errors import OptionError, QueryError
from ..core.rows.columns import as_array
from .coercion import Signature, standardized
from .columnar import Builder, on_series, polars_type
from .nodes import Call, Expression

# A call is named after its code, so queries of the same code share it, and a plan needs no registry. No function of SQL
# begins like this.
_PREFIX = "python "


@dataclass(frozen=True)
class PythonFunction:
    """A declared function. Its module is imported to check and to evaluate it, not to bind queries."""

    name: str
    parameters: pa.Schema
    type: pa.DataType
    place: str  # module:function

    @property
    def schema(self) -> pa.Schema:
        """The parameters, and the result."""
        return self.parameters.append(pa.field("result", self.type))

    def call(self, arguments: Sequence[Expression]) -> Expression:
        """Return a call, with implicit casts; raise SchemaError if the arguments do not fit."""
        signature = Signature(self.type, tuple(self.parameters.types), name=_PREFIX + self.place)
        return signature(self.name, [standardized(each) for each in arguments])

    def check(self) -> None:
        """Raise OptionError if the function cannot be imported, or does not take its parameters."""
        for each in (*self.parameters.types, self.type):
            polars_type(each)
        function = _imported(self.place)
        try:
            signature = inspect.signature(function)
        except ValueError:  # some builtins do not show theirs
            return
        try:
            signature.bind(*self.parameters)
        except TypeError as error:
            count = len(self.parameters)
            raise OptionError(
                f"'{self.place}' is a function of {signature}: {error}",
                expected=f"one that takes {count} array{'s' * (count != 1)}, as {self.name} is declared",
            ) from None


def is_python(call: Call) -> bool:
    """Return whether a call is one of a function in Python."""
    return call.function.startswith(_PREFIX)


def python_kernel(builder: Builder, *values: pl.Expr) -> pl.Expr:
    """Build a call: the function gets all rows at once, nulls included."""
    call, dtype = builder.call, polars_type(builder.type)
    function = _imported(call.function.removeprefix(_PREFIX))

    def run(*series: pl.Series) -> pl.Series:
        return pl.Series(pl.from_arrow(_result(call, function, series))).cast(dtype)

    return builder.share(on_series(run, *values, dtype=dtype))


def _imported(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    try:
        found = reduce(getattr, name.split("."), import_module(module))
    except Exception as error:
        # Anything may come out of a module, and none of it is a failure of the job's own disks.
        raise OptionError(
            f"'{place}' cannot be imported: {type(error).__name__}: {error}",
            expected="'module:function' of a module that Python finds, also in Spark's workers",
            hint="start where the module is, put its folder on PYTHONPATH, or set spark.submit.pyFiles",
        ) from error
    if not callable(found):
        raise OptionError(f"'{place}' is a {type(found).__name__}", expected="a function")
    return found


def _result(call: Call, function: Callable[..., Any], series: Sequence[pl.Series]) -> pa.Array:
    rows = len(series[0])
    if not rows:
        return pa.array([], call.type)
    try:
        arrays = [
            each.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(argument.type)
            for each, argument in zip(series, call.arguments, strict=True)
        ]
        made = function(*arrays)
        found = as_array(made if isinstance(made, pa.Array | pa.ChunkedArray) else pa.array(made)).cast(call.type)
    except Exception as error:
        raise QueryError(
            f"{call} failed: {type(error).__name__}: {error}",
            expected=f"an array of {call.type} for each batch of rows, nulls included",
        ) from error
    if len(found) != rows:
        raise QueryError(f"{call} returned {len(found)} values", expected=f"{rows}, one for each row")
    return found
