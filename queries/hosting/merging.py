"""What a task does with results: merge those of each query into its table's buckets, and stage the files."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa

from ...conf.errors import OptionError
from ...sink.results.result_table import ResultTable
from ...sink.results.staging import SeenTable, stage
from ...sink.spec.options import STORAGE_PREFIX
from ..deltas.failures import FAILURES, attributed
from .host_plan import Hosted, HostPlans
from .leaving import Leaving
from .results import result_rows

__all__ = ["MERGED_DDL", "GivenForTables", "MergeStep", "tables_of"]

MERGED_DDL = "control STRING, staged BINARY"
"""What comes back to the driver: what there is to know about queries, and what the commit of a table needs."""

_MERGED = pa.schema([("control", pa.string()), ("staged", pa.binary())])


@dataclasses.dataclass(frozen=True)
class GivenForTables:
    """What the program that starts the job gives for all tables. It is in no file, since it may have secrets.

    Attributes
    ----------
    options : tuple of (str, str)
        As of :class:`~upstream.sink.results.result_table.ResultTable`.
    overwrite : bool
        Whether tables of another checkpoint's queries are taken over.
    """

    options: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)
    overwrite: bool = False

    @classmethod
    def of(cls, options: Mapping[str, object], *, overwrite: bool) -> GivenForTables:
        """Return what a program gives.

        Raises
        ------
        OptionError
            One is no option of an object store.
        """
        unknown = [name for name in options if not name.lower().startswith(STORAGE_PREFIX)]
        if unknown:
            raise OptionError(
                f"unknown options: {', '.join(unknown)}", expected=f"options of an object store: {STORAGE_PREFIX}…"
            )
        return cls(tuple(sorted((name.lower(), str(value)) for name, value in options.items())), overwrite)

    @property
    def storage(self) -> dict[str, str]:
        """The options of the store, without what says that they are."""
        return {name.removeprefix(STORAGE_PREFIX): value for name, value in self.options}


_NOTHING_GIVEN = GivenForTables()


def tables_of(plans: HostPlans, version: int, given: GivenForTables = _NOTHING_GIVEN) -> dict[int, ResultTable]:
    """Return the tables of the queries in force, by incarnation.

    Parameters
    ----------
    plans
        The plans of the registry's versions.
    version
        Of the registry.
    given
        What holds for all tables.
    """
    queries, known = plans(version).queries, plans.registry_of(version).queries
    return {number: _table_of(each, known[each.name].location, given) for number, each in queries.items()}


# What writes a table is remembered by it, in a task as on the driver: so a query has the same one in each batch.
_made: dict[tuple[str, int, GivenForTables], tuple[Hosted, ResultTable]] = {}
_MOST = 10_000


def _table_of(query: Hosted, location: str, given: GivenForTables) -> ResultTable:
    known = _made.get((location, query.id, given))
    if known is not None and known[0] is query:
        return known[1]
    table = _new_table(query, location, given)
    _made[location, query.id, given] = query, table
    while len(_made) > _MOST:
        _made.pop(next(iter(_made)), None)
    return table


def _new_table(query: Hosted, location: str, given: GivenForTables) -> ResultTable:
    result = query.result
    return ResultTable(
        query.id,
        query.name,
        location,
        result.schema,
        result.key,
        "all" if result.kind == "feed" else "latest",
        query.buckets,
        given.options,
        given.overwrite,
    )


@dataclasses.dataclass(frozen=True)
class MergeStep:
    """From what left the second stage to what the driver commits.

    A table that cannot take its rows fails its query, and no other. Where a disk or a store fails, so does the batch:
    it is repeated.

    Attributes
    ----------
    plans : HostPlans
    version : int
        Of the registry.
    seen : mapping of str to SeenTable
        What the driver has seen of the tables, by the query's name. A query without one gets nothing.
    given : GivenForTables
        What holds for all tables.
    """

    plans: HostPlans
    version: int
    seen: Mapping[str, SeenTable]
    given: GivenForTables = _NOTHING_GIVEN

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row for the rows of each bucket, and each other control as it came."""
        frames: dict[str, list[pa.Buffer]] = {}
        controls: list[str] = []
        for batch in batches:
            for control, frame in zip(batch.column("control").to_pylist(), batch.column("frame"), strict=True):
                if frame.is_valid:
                    frames.setdefault(control, []).append(frame.as_buffer())
                else:
                    controls.append(control)  # equal ones of two shards are two
        staged: list[bytes | None] = [None] * len(controls)
        tables = tables_of(self.plans, self.version, self.given) if frames else {}
        for control, of_one in frames.items():
            leaving = Leaving.of(control)
            if leaving.name in self.seen:
                leaving, result = self._merged(leaving, tables[leaving.query], of_one)
                controls.append(leaving.control())
                staged.append(result)
        if controls:
            yield pa.RecordBatch.from_arrays([pa.array(controls), pa.array(staged, pa.binary())], schema=_MERGED)

    def _merged(self, leaving: Leaving, table: ResultTable, frames: list[pa.Buffer]) -> tuple[Leaving, bytes | None]:
        began = time.perf_counter()
        try:
            came = result_rows(frames)
            result = stage(table, self.seen[leaving.name], came)
        except FAILURES as error:  # a repeat would meet these; a full disk it may not
            return Leaving("failed", leaving.query, leaving.name, reason=str(attributed(error))), None
        took_s = time.perf_counter() - began
        return dataclasses.replace(leaving, count=came.rows.num_rows, took_s=took_s), result
