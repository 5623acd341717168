"""A shard's state of groups of newest rows, and the groups that a batch changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ...core.rows.newest import key_codes
from ...core.rows.system_column import deleted_mask
from ..aggregates.algebra import Aggregates
from ..joins.arriving import numbers_of
from ..joins.key_runs import KeyRuns
from ..joins.side import NUMBER
from ..runtime.arrivals import micros
from ..runtime.run_files import RunFiles
from ..runtime.store import Store
from .buckets import buckets_for
from .members import Asked, Members
from .plan import ROWS, GroupPlan

__all__ = ["ChangedGroups", "KeptGroups"]

_BITS = "__upstream_bits"


class ChangedGroups(NamedTuple):
    """The groups that a batch changes."""

    groups: pa.Table  # the columns of groups with a key
    values: pa.Table
    arrival: Int64s  # when the last change of each of the groups arrived
    gone: pa.Table  # the columns of groups whose last key left in this batch
    gone_arrival: Int64s


class KeptGroups:
    """The groups of a shard.

    With `results`, the state includes results that are not computed from partial aggregates, for :meth:`all_groups`.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        plan: GroupPlan,
        saved: Any,
        files: RunFiles | None = None,
        *,
        results: bool = False,
    ) -> None:
        self._plan = plan
        self._results = plan.held.result_schema if results and plan.held is not None else pa.schema([])
        side = plan.side
        groups = [side.schema.field(each) for each in side.on]
        own = [pa.field(each, pa.int64()) for each in (_BITS, NUMBER)]
        self._schema = pa.schema([*groups, *plan.added.state_schema, *self._results, *own])
        self._runs = KeyRuns(store, name, NUMBER, self._schema, saved.get("groups", {}), files=files)
        self._members = (
            None if plan.held is None else Members(store, f"{name}_members", side, plan.held, saved.get("members", {}))
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "groups": self._runs.to_json(),
            **({} if self._members is None else {"members": self._members.to_json()}),
        }

    @property
    def rows(self) -> int:
        return self._runs.rows

    def clear(self) -> None:
        self._runs.clear()
        if self._members is not None:
            self._members.clear()

    def all_groups(self) -> tuple[pa.Table, pa.Table]:
        """Return the columns of all groups, and their aggregates. Needs `results`."""
        kept = self._runs.all_rows()
        values = self._plan.added.lower(kept.select(self._plan.added.state_schema.names))
        for name in self._results.names:
            values = values.append_column(name, kept.column(name))
        return kept.select(list(self._plan.side.on)), values.select(list(self._plan.aggregates))

    def changed(self, changes: pa.Table) -> ChangedGroups:
        """Apply changes of keys' newest rows, at least one, and return the groups that they change.

        Changes are rows that enter their group, and tombstones, with former values, of rows that leave it.
        """
        side, added = self._plan.side, self._plan.added
        numbers = numbers_of(changes, side.on)
        found = self._runs.find(numbers)
        kept = found.rows
        before, group, first = _groups(kept, changes, side.on)
        n = len(first)
        groups, number = changes.select(list(side.on)).take(pa.array(first)).combine_chunks(), numbers[first]
        deleted = deleted_mask(changes).to_numpy()
        known = before[before >= 0]
        was = kept.filter(pa.array(before >= 0))
        state = added.combine(
            pa.concat_tables(
                [was.select(added.state_schema.names), _lifted(added, changes, group, ~deleted, n)]
            ).combine_chunks(),
            np.concatenate([known, np.arange(n)]),
            n,
        )
        state = added.retract(state, _lifted(added, changes, group, deleted, n))
        values = added.lower(state)
        count = values.column(ROWS).to_numpy()
        bits = np.zeros(n, dtype=np.int64)
        bits[known] = was.column(_BITS).to_numpy()
        if self._members is not None:
            after = buckets_for(count, bits)
            assert self._plan.held is not None
            asked = Asked(groups, number, bits, after, changes, group, deleted)
            lowered = self._plan.held.lower(self._members.changed(asked))
            bits = after
            for name in lowered.column_names:
                values = values.append_column(name, lowered.column(name))
        new = groups
        for name in added.state_schema.names:
            new = new.append_column(name, state.column(name))
        for name in self._results.names:
            new = new.append_column(name, values.column(name))
        new = new.append_column(_BITS, pa.array(bits)).append_column(NUMBER, pa.array(number))
        there = pa.array(count > 0)
        self._runs.replace(found, before < 0, new.filter(there).cast(self._schema))
        arrival = np.zeros(n, dtype=np.int64)
        np.maximum.at(arrival, group, micros(changes, "arrival"))
        left = np.zeros(n, dtype=np.bool_)
        left[known] = count[known] == 0
        return ChangedGroups(
            groups.filter(there),
            values.filter(there).select(list(self._plan.aggregates)),
            arrival[count > 0],
            groups.filter(pa.array(left)),
            arrival[left],
        )


def _groups(kept: pa.Table, changes: pa.Table, on: Sequence[str]) -> tuple[Int64s, Int64s, Int64s]:
    """Return each kept group's number (-1 without a change), each change's number, and each group's first change."""
    both = [(kept.column(name).chunks, changes.column(name)) for name in on]
    codes, size = key_codes([pa.chunked_array([*one, *two.chunks], two.type) for one, two in both])
    touched, first, group = np.unique(codes[kept.num_rows :], return_index=True, return_inverse=True)
    place = np.full(size, -1, dtype=np.int64)
    place[touched] = np.arange(len(touched))
    return place[codes[: kept.num_rows]], group, first


def _lifted(
    algebra: Aggregates, changes: pa.Table, group: Int64s, which: npt.NDArray[np.bool_], groups: int
) -> pa.Table:
    return algebra.lift(changes.filter(pa.array(which)).combine_chunks(), group[which], groups)
