"""``engine=merge``: keep another program's Delta table at the newest row per key through Delta's own MERGE."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...conf.column_names import quoted, spark_name
from ...conf.errors import EnvironmentMissingError, OptionError, SchemaError, TableError
from ...conf.locations import absolute_location
from ...core.rows.system_column import SYSTEM
from ...delta_format.latest_table import LAYOUT_PROPERTY
from ..commit.batch_identity import Fingerprint, NumberedWrite
from ..commit.batch_name import BatchName
from ..commit.running_batch import running_batch
from ..spec.delete_condition import with_deletions
from ..spec.key_names import column_named, key_named
from .merge_session import MergeSession, check_driver_session

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder, DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["DeltaMerge", "check_merge"]

_ROW, _DELETED = "_upstream_row", "_upstream_deleted"


@dataclasses.dataclass(frozen=True)
class DeltaMerge:
    """A function for ``foreachBatch`` that merges batches into a table.

    It is slower than the sink's own tables, since each batch joins the table. Guarantee: exactly once. Each
    MERGE carries `txnAppId` and `txnVersion`, by which a repeat is skipped, and a fingerprint of the offsets,
    by which a false repeat is refused. Deletions are not remembered: a row older than a deletion, in a later
    batch, brings its key back.
    """

    path: str
    key: tuple[str, ...]  # columns, or fields of columns
    time: str | None  # decides which of two rows is newer; if None, the later arrival is
    delete_when: str | None = None  # the column that marks deletions; the table does not have it

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        running = running_batch(batch.sparkSession)
        if running is None:
            raise OptionError(
                "the batch does not say which query it is of",
                expected="to be called by foreachBatch",
                hint="give the batch to upstream.write_batch, with txnAppId and txnVersion",
            )
        self.merge(batch, running.name._replace(number=batch_id))

    def merge(self, batch: DataFrame, name: BatchName | None) -> None:
        """Merge some rows, with or without the system column; once, if the write has a name.

        It is a TableError if the table has the number of this query's write, or a later one, and this is no repeat.
        """
        from delta.tables import DeltaTable

        spark = batch.sparkSession
        if name is None:
            self._merging(DeltaTable.forPath(spark, self.path), batch).execute()
            return
        session, write = MergeSession(spark, self.path), self._numbered(batch, name)
        # Delta itself passes over lower numbers, too, and says nothing.
        if write.repeats(session.recorded(write.writer), session.fingerprint):
            return
        session.name(write)
        self._merging(session.table(), batch).execute()

    def _numbered(self, batch: DataFrame, name: BatchName) -> NumberedWrite:
        fields = [
            field for field in batch.schema.jsonValue()["fields"] if field["name"] not in (SYSTEM, self.delete_when)
        ]
        columns = json.dumps([[(field["name"], field["type"]) for field in fields], self.delete_when])
        fingerprint = Fingerprint.of(name.number, name.offsets, columns)
        return NumberedWrite(self.path, name.writer, name.number, fingerprint, name.of_query, one_of_several=True)

    def _merging(self, table: DeltaTable, batch: DataFrame) -> DeltaMergeBuilder:
        columns = [name for name in batch.columns if name not in (SYSTEM, self.delete_when)]
        newest = self._newest(batch, columns)
        names = [spark_name(name, columns) for name in self.key]
        alike = " AND ".join(f"t.{name} = s.{name}" for name in names)
        newer = "true"
        if self.time is not None:
            time = quoted(self.time)
            # Of equal times the later arrival, as in the sink's own tables.
            newer = f"(t.{time} IS NULL OR s.{time} >= t.{time})"
        values: dict[str, str | Column] = {quoted(name): f"s.{quoted(name)}" for name in columns}
        return (
            table.alias("t")
            .merge(newest.alias("s"), alike)
            .whenMatchedDelete(f"s.{_DELETED} AND {newer}")
            .whenMatchedUpdate(f"NOT s.{_DELETED} AND {newer}", values)
            .whenNotMatchedInsert(f"NOT s.{_DELETED}", values)
        )

    def _newest(self, batch: DataFrame, columns: Sequence[str]) -> DataFrame:
        """Return one row for each key: the newest by time, and of equal times the one that arrived last."""
        from pyspark.sql import functions as F

        order: list[Column] = []
        deleted: Column = F.lit(False)
        if SYSTEM in batch.columns:
            batch = batch.where(~F.coalesce(F.col(f"{SYSTEM}.punctuation"), F.lit(False)))
            deleted = F.coalesce(F.col(f"{SYSTEM}.deleted"), F.lit(False))
            arrival = [] if self.time is not None else [F.col(f"{SYSTEM}.arrival")]
            order = [*arrival, F.col(f"{SYSTEM}.seq")]
        else:
            order = [F.monotonically_increasing_id()]
        if self.delete_when is not None:
            deleted = deleted | F.coalesce(F.col(quoted(self.delete_when)), F.lit(False))
        if self.time is not None:
            order = [self._usable(batch, self.time, "time"), *order]
        rows = batch.select(
            *[self._usable(batch, name, "key").alias(name) for name in self.key],
            F.struct(*order).alias("order"),
            F.struct(*[F.col(quoted(name)) for name in columns], deleted.alias(_DELETED)).alias(_ROW),
        )
        best = rows.groupBy(*[F.col(quoted(name)) for name in self.key]).agg(F.max_by(_ROW, "order").alias(_ROW))
        return best.select(f"{_ROW}.*")

    @staticmethod
    def _usable(batch: DataFrame, name: str, role: str) -> Column:
        """Return the column; a null in it fails the batch, as in the sink's own tables."""
        from pyspark.sql import functions as F

        column = F.col(spark_name(name, batch.columns))
        kind = batch.select(column).schema[0].dataType
        text = (
            f"upstream.conf.errors.MalformedRowError: a row has no {role} in the column {name!r}. What to do: filter "
            "such rows out before writing."
        )
        unusable = column.isNull()
        if role == "time" and kind.typeName() in ("float", "double"):
            unusable = unusable | F.isnan(column)
        return F.when(unusable, F.raise_error(F.lit(text)).cast(kind)).otherwise(column)


def check_merge(
    df: DataFrame,
    path: str,
    key: str | Sequence[str] | None,
    time: str | None,
    given: Mapping[str, Any],
    deletes: str | Column | None = None,
) -> tuple[DataFrame, DeltaMerge]:
    """Return the merge, and the rows with a column that marks deletions if any; refuse at once what a batch would.

    `given` are further options, none of which this engine has.
    """
    check_driver_session(df.sparkSession)
    others = [name for name in given if name.lower() != "engine"]
    if others:
        raise OptionError(
            f"engine=merge does not know {', '.join(sorted(others))}",
            expected="path, key, time and checkpointLocation: the table is as its owner has made it",
            hint="leave it out, or write to a table of the sink's own",
        )
    if not key:
        raise OptionError(
            "the DataFrame comes without an update key",
            expected="the name of one of its columns, or several",
            hint='add key="…"',
        )
    keys = (key,) if isinstance(key, str) else tuple(key)
    place = absolute_location(path)
    fields = _fields(df.sparkSession, place)
    lowered = {name.lower() for name in fields}
    marks: str | None = None
    if deletes is not None:
        df, marks = with_deletions(df, deletes)
    kinds = {field["name"]: field["type"] for field in df.schema.jsonValue()["fields"]}
    kinds = {name: kind for name, kind in kinds.items() if name not in (SYSTEM, marks)}
    columns = list(kinds)
    keys = tuple(key_named(name, kinds) for name in keys)
    time = None if time is None else column_named(time, kinds, "time")
    absent = [name for name in columns if name.lower() not in lowered]
    if absent:
        raise SchemaError(
            f"the table at {place} has no column {', '.join(absent)}",
            expected=f"columns of the table: {', '.join(fields)}",
            hint="drop them before writing, or add them to the table with ALTER TABLE … ADD COLUMNS",
        )
    return df, DeltaMerge(place, keys, time, marks)


def _fields(spark: SparkSession, place: str) -> list[str]:
    try:
        from delta.tables import DeltaTable

        if not DeltaTable.isDeltaTable(spark, place):
            raise TableError(
                f"there is no Delta table at {place}",
                expected="with engine=merge a table that exists",
                hint="make it first, with its columns, for example with CREATE TABLE … USING delta; or leave engine "
                "out: then the sink makes one",
            )
        table = DeltaTable.forPath(spark, place)
    except (ImportError, TypeError) as error:
        raise EnvironmentMissingError(
            f"this Spark session has no Delta: {error}",
            expected="Delta's jars, which engine=merge runs on",
            hint="make the session with upstream.session()",
        ) from error
    properties = table.detail().select("properties").first()
    if properties is not None and LAYOUT_PROPERTY in (properties[0] or {}):
        raise TableError(
            f"the table at {place} is one of the sink's own",
            expected="with engine=merge a table that somebody else has laid out",
            hint="leave engine out: the sink writes this table many times faster",
        )
    return table.toDF().columns
