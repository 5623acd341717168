"""Joins with tables, on Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ...conf.errors import OptionError
from ...conf.session import register_data_source
from ..runtime.shard_processor import batch_id
from ..runtime.steps import PhysicalStep
from .lookup import TableJoinPlan, index_at, joined
from .versions import LOCATION, STORAGE, TableVersions, version_of_batch

if TYPE_CHECKING:
    from ...plan.nodes import TableJoin


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
