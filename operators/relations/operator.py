"""The interface of operators: changes of the inputs in, changes of the result out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl
import pyarrow as pa

from ...conf.errors import CheckpointError, SchemaError, TableError
from ...expressions.compile import compiled
from ...expressions.nodes import Expression, Field, fields
from .arrangement import DueRows
from .zsets import Span, dtype_of, dtypes_of, empty_delta


@dataclass(frozen=True)
class Evaluable:
    """An expression that can be evaluated."""

    evaluate: Callable[[pl.DataFrame], pl.Series]
    columns: frozenset[str]  # The columns that it reads.
    type: pa.DataType
    column: str | None = None  # The column's name, if the expression is a plain column: nothing is evaluated.
    text: str = ""  # As the user wrote it, for errors.

    def series(self, frame: pl.DataFrame, name: str) -> pl.Series:
        dtype = dtype_of(self.type)
        if frame.height == 0:
            return pl.Series(name, [], dtype=dtype)
        values = self.evaluate(frame) if self.column is None else frame.get_column(self.column)
        if len(values) != frame.height:
            values = values.new_from_index(0, frame.height)
        return values.cast(dtype).alias(name) if values.dtype != dtype else values.alias(name)


class Operator(ABC):
    """A part of a plan that runs.

    A step is a function of the operator's state, its inputs' changes and the span: repeated from the same state, it
    returns the same.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.dtypes = dtypes_of(schema)
        self.nothing = empty_delta(schema)

    @abstractmethod
    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        """Return the consolidated changes within the span. Only rows of input streams may have later times."""

    def acts(self, span: Span) -> bool:
        """Return whether a step has work even if no input changes; never called for the first step."""
        return False

    def due(self, low_watermark: int) -> int | None:
        """Return the low-watermark above which a step without rows changes something; None if none does."""
        return None

    def following(self, low_watermark: int) -> int | None:
        """Return the time of the next change of a step without rows, or an earlier one; None if none comes."""
        return self.due(low_watermark)

    def rests_from(self, inputs: int) -> int:
        """Return a time from which nothing changes any more, if the inputs change nothing from ``inputs`` on."""
        return inputs

    def contents(self) -> pl.DataFrame | None:
        """Return the relation's weighted rows after the last step; None if the state lacks them."""
        return None

    def kept(self) -> Sequence[pl.DataFrame | None]:
        """Return the inputs' weighted rows after the last step; None for an input that may lack needed rows."""
        return ()

    def over(self, inputs: Sequence[Operator]) -> None:  # noqa: B027
        """Connect to the operators of the inputs, before the first step."""

    def end(self) -> None:  # noqa: B027
        """Disconnect from them, after the last step."""

    def forget(self) -> None:  # noqa: B027
        """Forget state that only disconnected operators needed, before others connect."""

    forgets: bool = False
    """True if the relation's contents are neither in the state nor follow from the inputs."""

    def complete_from(self, since: int) -> int | None:
        """Return the time from which the relation is complete if its inputs are from ``since`` on; None if never."""
        return since


class WaitingOperator(Operator):
    """An operator with rows that wait for the low-watermark to pass their time."""

    _pending: DueRows

    def acts(self, span: Span) -> bool:
        return self._pending.due(span.until)

    def due(self, low_watermark: int) -> int | None:
        return self._pending.first

    def rests_from(self, inputs: int) -> int:
        last = self._pending.last
        return inputs if last is None else max(inputs, last + 1)


def with_columns(frame: pl.DataFrame, computed: Iterable[tuple[str, Evaluable]]) -> pl.DataFrame:
    """Add computed columns."""
    return frame.with_columns([each.series(frame, name) for name, each in computed])


def needed(frame: pl.DataFrame, *computed: Evaluable) -> list[str]:
    """Return the columns that some expressions read, in the frame's order."""
    columns = frozenset[str]().union(*(each.columns for each in computed))
    return [name for name in frame.columns if name in columns]


class RowOperator(Operator):
    """An operator that processes each row of a relation alone."""

    source: Operator

    def over(self, inputs: Sequence[Operator]) -> None:
        (self.source,) = inputs

    def origin(self, column: str) -> str | None:
        """Return the input's column that a column is; None if it is computed."""
        return column


FAILURES = (Exception, pl.exceptions.PanicException)
"""The errors of planning, evaluating or merging a query. A panic of Polars is no ``Exception``."""

_ENVIRONMENT = (OSError, EOFError, CheckpointError)


def attributed(error: BaseException) -> BaseException:
    """Return an error that ends its query, or raise one of a disk, a store or the state, so the batch is repeated."""
    # Spark's own errors come from its state store; the values of a query never pass through it.
    of_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    of_disk = isinstance(error, TableError) and isinstance(error.__cause__, OSError)
    if isinstance(error, _ENVIRONMENT) or of_spark or of_disk:
        raise error
    return error


def reason_of(error: BaseException) -> str:
    """Return the reason that users see for a query's end; raise as :func:`attributed` does."""
    return f"{type(error).__name__}: {attributed(error)}"


def computed(expression: Expression, schema: pa.Schema) -> Evaluable:
    """Compile an expression over rows with these columns, with Spark's meaning."""
    # A schema's hash reads all of its columns, and there is an expression for each.
    places = sorted(place for each in fields(expression) if (place := schema.get_field_index(each)) >= 0)
    return _computed(expression, str(expression), pa.schema([schema.field(place) for place in places]))


# Queries are many and their expressions few: to compile one takes a third of a millisecond. The text differs
# for 0.0 and -0.0, which are equal.
@lru_cache(maxsize=4096)
def _computed(expression: Expression, text: str, schema: pa.Schema) -> Evaluable:
    evaluate = compiled(expression, schema).evaluate
    column = expression.name if isinstance(expression, Field) else None
    return Evaluable(evaluate, fields(expression), expression.type, column, text)


def check_keys(on: Sequence[tuple[Evaluable, Evaluable]]) -> None:
    """Raise SchemaError if keys that are compared have different types."""
    for one, two in on:
        if one.type != two.type:
            raise SchemaError(
                f"a join compares {one.type} with {two.type}",
                expected="keys of one type",
                hint="cast one of them",
            )
