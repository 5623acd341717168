"""The tasks' merge of results into the buckets of each query's table, and the staging of the files."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import pickle
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from ..conf.errors import OptionError
from ..core.feedback.reports import task_property
from ..operators.relations.operator import FAILURES, reason_of
from ..operators.runtime.pack import PACKED
from ..sink.results.result_table import ResultTable, SeenTable, stage
from ..sink.spec.options import STORAGE_PREFIX
from .host_plan import HostPlans, PlacedQuery
from .messages import Command
from .output import OutputControl, result_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclasses.dataclass(frozen=True)
class GivenForTables:
    """The starting program's settings for all tables. They are never written to a file, since they may have secrets."""

    options: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)  # as of ``ResultTable``
    overwrite: bool = False  # take over tables of another checkpoint's queries

    @classmethod
    def of(cls, options: Mapping[str, object], *, overwrite: bool) -> GivenForTables:
        """Return the settings; raise OptionError if one is not an option of an object store."""
        unknown = [name for name in options if not name.lower().startswith(STORAGE_PREFIX)]
        if unknown:
            raise OptionError(
                f"unknown options: {', '.join(unknown)}", expected=f"options of an object store: {STORAGE_PREFIX}…"
            )
        return cls(tuple(sorted((name.lower(), str(value)) for name, value in options.items())), overwrite)

    @property
    def storage(self) -> dict[str, str]:
        """The options of the object store, without their prefix."""
        return {name.removeprefix(STORAGE_PREFIX): value for name, value in self.options}


_NOTHING_GIVEN = GivenForTables()


def tables_of(plans: HostPlans, version: int, given: GivenForTables = _NOTHING_GIVEN) -> dict[int, ResultTable]:
    """Return the tables of the queries in force, by incarnation."""
    queries, known = plans(version).queries, plans.registry_of(version).queries
    return {number: _table_of(each, known[each.name].location, given) for number, each in queries.items()}


# The sink caches writers by ResultTable, in tasks and on the driver: so a query has the same one in each batch.
_made: dict[tuple[str, int, GivenForTables], tuple[PlacedQuery, ResultTable]] = {}
_MOST = 10_000


def _table_of(query: PlacedQuery, location: str, given: GivenForTables) -> ResultTable:
    known = _made.get((location, query.id, given))
    if known is not None and known[0] is query:
        return known[1]
    table = query.result.table(query.id, query.name, location, query.buckets, given.options, overwrite=given.overwrite)
    _made[location, query.id, given] = query, table
    while len(_made) > _MOST:
        _made.pop(next(iter(_made)), None)
    return table


@dataclasses.dataclass(frozen=True)
class MergeStep:
    """The step from the second stage's output to the rows that the driver commits.

    If a table cannot take its rows, its query fails, and no other does. If a disk or a store fails, the batch fails and
    is repeated.
    """

    plans: HostPlans
    version: int
    seen: Mapping[str, SeenTable]  # the driver's view of the tables, by query name; a query without one gets no rows
    given: GivenForTables = _NOTHING_GIVEN

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row with the input of the commit for each bucket with rows, and all other controls unchanged."""
        frames: dict[str, list[pa.Buffer]] = {}
        controls: list[str] = []
        for batch in batches:
            for control, frame in zip(batch.column("control").to_pylist(), batch.column("frame"), strict=True):
                if frame.is_valid:
                    frames.setdefault(control, []).append(frame.as_buffer())
                else:
                    controls.append(control)  # equal controls of two shards count twice
        staged: list[bytes | None] = [None] * len(controls)
        tables = tables_of(self.plans, self.version, self.given) if frames else {}
        for control, of_one in frames.items():
            leaving = OutputControl.of(control)
            if leaving.name in self.seen:
                leaving, result = self._merged(leaving, tables[leaving.query], of_one)
                controls.append(leaving.control())
                staged.append(result)
        if controls:
            slots = pa.nulls(len(controls), pa.int32())
            yield pa.RecordBatch.from_arrays([slots, pa.array(staged, pa.binary()), pa.array(controls)], schema=PACKED)

    def _merged(
        self, leaving: OutputControl, table: ResultTable, frames: list[pa.Buffer]
    ) -> tuple[OutputControl, bytes | None]:
        began = time.perf_counter()
        try:
            came = result_rows(frames)
            result = stage(table, self.seen[leaving.name], came)
        except FAILURES as error:  # a repeat would fail the same way; after a full disk, it may not
            return OutputControl("failed", leaving.query, leaving.name, reason=reason_of(error)), None
        took_s = time.perf_counter() - began
        return dataclasses.replace(leaving, count=came.rows.num_rows, took_s=took_s), result


_SEEN = "upstream.queries.seen"


@contextlib.contextmanager
def shown_to_tasks(session: SparkSession, seen: Mapping[str, SeenTable]) -> Generator[None]:
    """Let the tasks of the block's jobs have the driver's view of the tables, for :class:`MergeInShard`."""
    session.sparkContext.setLocalProperty(_SEEN, base64.b64encode(zlib.compress(pickle.dumps(seen), 1)).decode())
    try:
        yield
    finally:
        session.sparkContext.setLocalProperty(_SEEN, "")


@functools.lru_cache(maxsize=1)
def _seen_in(text: str) -> Mapping[str, SeenTable]:
    return pickle.loads(zlib.decompress(base64.b64decode(text)))  # noqa: S301 the driver of the same job wrote it


@dataclasses.dataclass(frozen=True)
class MergeInShard:
    """:class:`MergeStep` in the second stage's own workers, unless several shards can have rows for one bucket."""

    commands: Callable[[], Command]
    plans: HostPlans
    given: GivenForTables

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what :class:`MergeStep` does, or the rows unchanged."""
        version = self.commands().version
        if self.plans(version).spreads_results:
            return batches
        seen = task_property(_SEEN)
        assert seen, "called outside of a batch of HostedBatches"
        return MergeStep(self.plans, version, _seen_in(seen), self.given)(batches)
