"""Functions in Python over Arrow arrays: their import, their calls in expressions, and the evaluation of these."""

from __future__ import annotations

import inspect
import multiprocessing
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from ..conf.errors import OptionError, QueryError
from ..conf.process_identity import end_in_words
from ..core.rows.columns import as_array
from .coercion import Signature, standardized
from .columnar import Builder, on_series, polars_type
from .nodes import Call, Expression

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

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
    if not _is_repeat():
        _imported(_place(call))

    def run(*series: pl.Series) -> pl.Series:
        return pl.Series(pl.from_arrow(_result(call, series))).cast(dtype)

    return builder.share(on_series(run, *values, dtype=dtype))


def _imported(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    try:
        found = reduce(getattr, name.split("."), import_module(module))
    except BaseException as error:
        # Anything may come out of a module, and none of it is a failure of the job's own disks.
        if _is_of_user(error):
            raise
        raise OptionError(
            f"'{place}' cannot be imported: {type(error).__name__}: {error}",
            expected="'module:function' of a module that Python finds, also in Spark's workers",
            hint="start where the module is, put its folder on PYTHONPATH, or set spark.submit.pyFiles",
        ) from error
    if not callable(found):
        raise OptionError(f"'{place}' is a {type(found).__name__}", expected="a function")
    return found


def _place(call: Call) -> str:
    return call.function.removeprefix(_PREFIX)


def _is_of_user(error: BaseException) -> bool:
    """Return whether a person has interrupted this program: Python does so in the main thread alone."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _result(call: Call, series: Sequence[pl.Series]) -> pa.Array:
    rows = len(series[0])
    if not rows:
        return pa.array([], call.type)
    try:
        arrays = [
            each.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(argument.type)
            for each, argument in zip(series, call.arguments, strict=True)
        ]
        made = _array_apart(_place(call), arrays) if _is_repeat() else _array(_place(call), arrays)
        found = made.cast(call.type)
        found.validate(full=True)  # no reader opens a table with text that is not UTF-8
    except BaseException as error:
        if _is_of_user(error):
            raise
        raise QueryError(
            f"{call} failed: {_reason(error)}",
            expected=f"an array of {call.type} for each batch of rows, nulls included",
        ) from error
    if len(found) != rows:
        raise QueryError(f"{call} returned {len(found)} values", expected=f"{rows}, one for each row")
    return found


def _array(place: str, arrays: Sequence[pa.Array]) -> pa.Array:
    made = _imported(place)(*arrays)
    return as_array(made if isinstance(made, pa.Array | pa.ChunkedArray) else pa.array(made))


def _is_repeat() -> bool:
    """Return whether an earlier attempt at the current Spark task has failed: a function may have killed its worker."""
    module = sys.modules.get("pyspark.taskcontext")
    task = None if module is None else module.TaskContext.get()
    return task is not None and (task.attemptNumber() or 0) > 0


class _ApartProcess:
    """A process that calls functions, so that one that kills its process does not kill this one."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would lack the threads of Polars and Arrow
        self._pipe, end = spawn.Pipe()
        self._process = spawn.Process(target=_answer_calls, args=(end,), daemon=True)
        self._process.start()
        end.close()

    def array(self, place: str, arrays: Sequence[pa.Array]) -> pa.Array:
        """Return the result of a function; a ChildProcessError has the reason why there is none."""
        global _apart  # noqa: PLW0603 one for each worker
        try:
            self._pipe.send((place, arrays))
            made = self._pipe.recv()
        except (EOFError, OSError):
            _apart = None
            self._process.join()
            raise ChildProcessError(f"its process {end_in_words(self._process.exitcode or 0)}") from None
        if isinstance(made, str):
            raise ChildProcessError(made)
        return made


_apart: _ApartProcess | None = None


def _array_apart(place: str, arrays: Sequence[pa.Array]) -> pa.Array:
    global _apart  # noqa: PLW0603 one for each worker
    _apart = _apart or _ApartProcess()
    return _apart.array(place, arrays)


def _answer_calls(pipe: Connection) -> None:
    """Send the array of each call, or the reason why there is none, until the other process ends."""
    while True:
        try:
            place, arrays = pipe.recv()
        except EOFError:
            return
        try:
            made = _array(place, arrays)
        except BaseException as error:  # noqa: BLE001 raised where the array is waited for
            made = _reason(error)
        pipe.send(made)


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, ChildProcessError) else f"{type(error).__name__}: {error}"
