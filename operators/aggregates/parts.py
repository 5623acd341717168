"""The components of an aggregate: parts of state that aggregates share, and a plan that lowers them to a result."""

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
    """A piece of state over some columns. Aggregates that need the same piece share it."""

    key: str  # the state, its columns and the layout's version, such as sum@1(v); it names stored columns
    inputs: tuple[str, ...]  # the columns that it reads
    fields: tuple[pa.Field, ...]  # the columns of the state
    differential: bool = False  # whether retract() exists
    exact: bool = False  # whether states are integers that add up, so that running() and between() exist

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
        """Return the cumulative sums of the states, from 0 to the sum of all, as limbs."""
        raise NotImplementedError(f"{self.key} has no running sums")

    def overlapping(self, state: State) -> Overlapping | None:  # noqa: ARG002
        """Return a structure for range extremes if states are minima or maxima; None otherwise."""
        return None

    def prefixes(self, state: State, begins: Int64s) -> State | None:  # noqa: ARG002
        """Return the combined state of each run up to and including each state; None if combining in pairs is faster.

        `begins` holds the position of each run's first state.
        """
        return None

    def between(self, running: Sequence[Int64s], low: Int64s, high: Int64s) -> State:
        """Return the state of each range ``low[i] <= row < high[i]`` of the states passed to :meth:`running`."""
        raise NotImplementedError(f"{self.key} has no running sums")


@dataclass(frozen=True)
class Plan:
    """The computation of an aggregate for given types."""

    parts: tuple[Part, ...]
    type: pa.DataType  # of the result, as in Spark
    lower: Callable[[Mapping[str, State]], pa.Array]  # from each part's state, by its key, to one result per group


@dataclass(frozen=True)
class Aggregate:
    """An aggregate before its types are known, as users create it with `sum_`, `count` and the others."""

    text: str  # as the user wrote it, for messages
    plan: Callable[[pa.Schema], Plan]  # from the rows' schema; raises SchemaError if the types do not fit

    def __repr__(self) -> str:
        return self.text
