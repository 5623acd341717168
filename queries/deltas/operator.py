"""What an operator is: changes of its inputs in, changes of its result out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from .zsets import Span, dtype_of, dtypes_of, empty_delta

__all__ = ["Computed", "Operator", "needed", "with_columns"]


@dataclass(frozen=True)
class Computed:
    """An expression that can be evaluated.

    Parameters
    ----------
    evaluate : callable
        From a frame to one value for each row.
    columns : frozenset of str
        The columns that it reads.
    type : pyarrow.DataType
        Of the values.
    column : str, optional
        Which column the expression is, if it is no more than that: then nothing is evaluated.
    """

    evaluate: Callable[[pl.DataFrame], pl.Series]
    columns: frozenset[str]
    type: pa.DataType
    column: str | None = None

    def series(self, frame: pl.DataFrame, name: str) -> pl.Series:
        """Return the values as a column of that name and of the expression's type."""
        dtype = dtype_of(self.type)
        if frame.height == 0:
            return pl.Series(name, [], dtype=dtype)
        values = self.evaluate(frame) if self.column is None else frame.get_column(self.column)
        if len(values) != frame.height:
            values = values.new_from_index(0, frame.height)
        return values.cast(dtype).alias(name) if values.dtype != dtype else values.alias(name)


class Operator(ABC):
    """A part of a plan that runs.

    A step is a function of the operator's state, the changes of its inputs, and the span: run again from the same
    state it returns the same.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the result.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.dtypes = dtypes_of(schema)
        self.nothing = empty_delta(schema)

    @abstractmethod
    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        """Return the changes of the result within the span, consolidated.

        Parameters
        ----------
        inputs
            The changes of each input within the span, consolidated. A stream's rows may have later times.
        span : Span
        """

    def acts(self, span: Span) -> bool:
        """Return whether there is something to do in a step in which no input changes; never in the first one.

        Parameters
        ----------
        span : Span
        """
        return False

    def due(self, low_watermark: int) -> int | None:
        """Return above which low-watermark a step without rows changes something; None if none does.

        Parameters
        ----------
        low_watermark : int
            That of the last step.
        """
        return None

    def contents(self) -> pl.DataFrame | None:
        """Return the relation as it is after the last step, with weights, where the state has it.

        None if it does not: it then follows from the contents of the inputs, unless :attr:`forgets`.
        """
        return None

    def kept(self) -> Sequence[pl.DataFrame | None]:
        """Return what the inputs contain after the last step, with weights, as far as the state has it.

        None for an input of which rows may be missing that the result follows from. Nothing at all if no input is kept.
        """
        return ()

    def over(self, inputs: Sequence[Operator]) -> None:  # noqa: B027
        """Take note of the operators of the inputs, before the first step."""

    def end(self) -> None:  # noqa: B027
        """Take leave of them: there is no further step."""

    def forget(self) -> None:  # noqa: B027
        """Forget what only operators needed that have taken leave, before others take note."""

    forgets: bool = False
    """Whether what the relation contains is neither in the state nor follows from the inputs."""

    def whole_from(self, since: int) -> int | None:
        """Return the time from which the relation lacks nothing, if its rows are seen from ``since`` on.

        None if that is never certain. Only called for windows over streams that began after the first step.
        """
        return since


def with_columns(frame: pl.DataFrame, computed: Iterable[tuple[str, Computed]]) -> pl.DataFrame:
    """Return a frame with more columns, computed from it."""
    return frame.with_columns([each.series(frame, name) for name, each in computed])


def needed(frame: pl.DataFrame, *computed: Computed) -> list[str]:
    """Return the columns of a frame that some expressions read, in the frame's order."""
    columns = frozenset[str]().union(*(each.columns for each in computed))
    return [name for name in frame.columns if name in columns]
