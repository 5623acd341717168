"""What an aggregate is made of: parts of state that aggregates share, and a plan that lowers them to a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .groups import Groups, Rows
from .overlapping import Overlapping

__all__ = ["Aggregate", "Part", "Plan", "State"]

Int64s = npt.NDArray[np.int64]

State = Sequence[pa.Array]
"""A part's columns, in the order of its `fields`; each has one value per group."""


class Part(ABC):
    """A piece of state over some columns. Aggregates that need the same piece share it.

    Attributes
    ----------
    key : str
        Says what is kept, of which columns, and in which version of the layout: ``sum@1(v)``. Two parts with one key
        are the same part, and stored columns are named by it; so it changes when what is stored changes.
    inputs : tuple of str
        Columns that are read.
    fields : tuple of pyarrow.Field
        Columns of the state.
    differential : bool
        Whether :meth:`retract` exists.
    exact : bool
        Whether states are whole numbers that are added up, so that running sums can be subtracted without an error:
        :meth:`running` and :meth:`between` exist.
    """

    key: str
    inputs: tuple[str, ...]
    fields: tuple[pa.Field, ...]
    differential: bool = False
    exact: bool = False

    @abstractmethod
    def lift(self, rows: Rows) -> State:
        """Return the state of each group of some rows."""

    @abstractmethod
    def combine(self, state: State, groups: Groups) -> State:
        """Combine some states into one state per group."""

    def retract(self, state: State, other: State) -> State:
        """Return each group's `state` without the rows of `other`, which are among its own."""
        raise NotImplementedError(f"{self.key} cannot be retracted")

    def running(self, state: State) -> Sequence[Int64s]:
        """Return the sums of the states before each one, and of all, as parts of numbers."""
        raise NotImplementedError(f"{self.key} has no running sums")

    def overlapping(self, state: State) -> Overlapping | None:  # noqa: ARG002
        """Return what finds the states of ranges if they are the least or greatest of numbers; None if they are not."""
        return None

    def prefixes(self, state: State, begins: Int64s) -> State | None:  # noqa: ARG002
        """Return the combined states of each run up to and including each state; None if that is best done in pairs.

        Parameters
        ----------
        state : sequence of pyarrow.Array
            States in runs.
        begins : int64 array
            The positions of the first state of each run.
        """
        return None

    def between(self, running: Sequence[Int64s], low: Int64s, high: Int64s) -> State:
        """Return the state of each range ``low[i] <= row < high[i]`` of the states that :meth:`running` was given."""
        raise NotImplementedError(f"{self.key} has no running sums")


@dataclass(frozen=True)
class Plan:
    """How an aggregate of given types is computed.

    Parameters
    ----------
    parts : tuple of Part
        The state it needs.
    type : pyarrow.DataType
        Of the result, as Spark has it.
    lower : callable
        From the state of each part, by its key, to one result per group.
    """

    parts: tuple[Part, ...]
    type: pa.DataType
    lower: Callable[[Mapping[str, State]], pa.Array]


@dataclass(frozen=True)
class Aggregate:
    """An aggregate that has not seen types yet, as made by `sum_`, `count` and the others.

    Parameters
    ----------
    text : str
        As the user wrote it, for messages.
    plan : callable
        From the schema of the rows to its plan; raises SchemaError if the types do not fit.
    """

    text: str
    plan: Callable[[pa.Schema], Plan]

    def __repr__(self) -> str:
        return self.text
