"""Joins with tables on Spark: a table's version as an offset of the query, from a source without rows."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from ...conf.errors import CheckpointError, OptionError
from ...conf.locations import checkpoint_location
from ...conf.session import register_data_source
from ...core.feedback.offsets import journaled_offsets
from ...storage.folder import folder_at
from ..runtime.shard_processor import batch_id
from ..runtime.steps import PhysicalStep
from .lookup import TableJoinPlan, Version, index_at, joined, latest_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ...plan.nodes import TableJoin


LOCATION, STORAGE = "location", "storage."
"""Option names: the table's location, and the prefix of its store's options."""

_TABLE = "upstream_table"
_EVERY_S = 1.0
"""Seconds between look-ups: Spark polls an idle source many times a second."""


class TableVersions(DataSource):
    """The ``upstream_table_versions`` format; made by the fluent stream, not by users."""

    @classmethod
    def name(cls) -> str:
        return "upstream_table_versions"

    def schema(self) -> StructType | str:
        """Return a schema for a reader without one: there are no rows."""
        return "nothing INT"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        del schema
        storage = {name[len(STORAGE) :]: value for name, value in self.options.items() if name.startswith(STORAGE)}
        return VersionReader(self.options[LOCATION], storage)


class VersionReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader whose offsets are the versions of a table.

    Spark records a batch's offsets before the batch runs. So a task finds its version there, and a rerun reads the same
    one even if the table has changed.
    """

    def __init__(self, location: str, storage: Mapping[str, str]) -> None:
        self._location = location
        self._storage = storage
        self._asked = float("-inf")
        self._known: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {_TABLE: self._location, "id": "", "version": -1}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the table's current version, looked up at most once a second."""
        del start, limit
        if self._last is not None:
            return self._last
        now = time.monotonic()
        if self._known is None or now - self._asked >= _EVERY_S:
            self._known, self._asked = self._latest(), now
        return self._known

    def prepareForTriggerAvailableNow(self) -> None:
        """Pin the current version for all batches of this run."""
        self._last = self._latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one task without rows."""
        del start, end
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        return iter(())

    def _latest(self) -> dict[str, Any]:
        version = latest_version(self._location, self._storage)
        return {_TABLE: self._location, "id": version.table, "version": version.number}


def version_of_batch(checkpoint: str, batch: int, location: str) -> Version:
    """Return the table's version that a batch was planned with, from the offsets in the query's checkpoint."""
    try:
        offsets = journaled_offsets(folder_at(checkpoint_location(checkpoint)), batch)
    except FileNotFoundError as error:
        raise _unknown(f"the checkpoint has no offsets of batch {batch}") from error
    found: list[dict[str, Any]] = [each for each in offsets if isinstance(each, dict) and _TABLE in each]
    for offset in found:
        if offset[_TABLE] == location:
            return Version(str(offset["id"]), int(offset["version"]))
    planned = ", ".join(str(offset[_TABLE]) for offset in found) or "no table"
    raise _unknown(f"batch {batch} was planned with {planned}, and the query joins the table at {location}")


def _unknown(problem: str) -> CheckpointError:
    return CheckpointError(
        problem,
        expected="the version of the table in the offsets of each batch",
        hint="run the query with micro-batches, without asynchronous progress tracking, and with the checkpoint of "
        "dataframe(…). If the table has moved, first finish the planned batch, or use a new checkpoint",
    )


@dataclasses.dataclass(frozen=True)
class TableLookup:
    """The step of a table join in a task."""

    plan: TableJoinPlan
    checkpoint: str  # of the query, whose offsets name the table's version

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        version = version_of_batch(self.checkpoint, batch_id(), self.plan.location)
        yield from joined(batches, index_at(self.plan, version), self.plan)


def build_table_join(node: TableJoin, before: PhysicalStep, checkpoint: str | None) -> PhysicalStep:
    """Return the rows after a table join; refuse a query whose checkpoint is not known yet."""
    if checkpoint is None:
        raise OptionError(
            f"this stream reads the offsets of its query, whose checkpoint is not known yet: {node.text}",
            expected="a checkpoint, when the stream is written",
            hint="write the stream, or call stream.dataframe(checkpoint), with the checkpoint that the query will have",
        )
    plan = node.specification
    df = before.df
    session = df.sparkSession
    register_data_source(session)
    session.dataSource.register(TableVersions)
    options = {LOCATION: plan.location, **{STORAGE + name: value for name, value in plan.storage}}
    versions = session.readStream.format(TableVersions.name()).schema(df.schema).options(**options).load()
    return PhysicalStep(df.union(versions), node.schema, (TableLookup(plan, checkpoint),))
