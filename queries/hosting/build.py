"""Construction of the streaming query behind all continuous queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, cast

from ...conf.session import register_data_source
from ...conf.state_store import check_state_store
from ...core.pushdown.source_steps import ArrowStep
from ...operators.keyed import KeyedRows, bound_together
from ...operators.runtime.pack import PACKED, PACKED_DDL
from ...operators.runtime.shard_processor import ShardProcessor
from ...operators.runtime.sharded import InShards
from .command_source import BATCH_S, CHECKPOINT, CommandSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["build_host"]


def build_host(
    streams: Mapping[str, KeyedRows],
    checkpoint: str,
    slots: Sequence[int],
    scan: Callable[[str], ArrowStep],
    first: ShardProcessor,
    second: ShardProcessor,
    batch_s: float | None = None,
) -> DataFrame:
    """Return the second stage's output as frames and controls.

    The query's form is fixed for the life of a checkpoint; the continuous queries are data of the commands.
    `batch_s` is the target duration of a batch in seconds; without it, each batch emits all results.
    """
    from pyspark.sql.types import StructType

    names = sorted(streams)
    session = streams[names[0]].session
    check_state_store(session, "continuous queries")
    bound = bound_together([streams[name] for name in names], checkpoint)
    register_data_source(session)
    session.dataSource.register(CommandSource)
    options = {CHECKPOINT: checkpoint, "slots": ",".join(map(str, slots))}
    options |= {} if batch_s is None else {BATCH_S: str(batch_s)}
    inputs = [each.rows.packed(scan(name)) for name, each in zip(names, bound, strict=True)]
    inputs.append(session.readStream.format(CommandSource.name()).options(**options).load())
    schema = cast("StructType", StructType.fromDDL(PACKED_DDL))
    df = reduce(lambda left, right: left.union(right), inputs)
    for stage in (first, second):
        df = InShards(PACKED, df, tuple(slots), stage).few((), schema)
    return df
