"""``engine=merge``: keep another program's Delta table at the newest row per key through Delta's own MERGE."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...conf.column_names import quoted, spark_name
from ...conf.errors import EnvironmentMissingError, OptionError, SchemaError, TableError, pip_install
from ...conf.locations import absolute_location, is_client
from ...core.rows.key import Key
from ...core.rows.system_column import SYSTEM
from ...delta_format.latest_table import LAYOUT_PROPERTY
from ..commit.batch_identity import BatchIdentity, Fingerprint
from ..commit.batch_name import BatchName, running_batch
from ..figures.summary import APP_PREFIX
from ..spec.key_names import column_named, tree_of, with_deletions

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder, DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession


_TXN_APP_ID, _TXN_VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_BATCH_KEY = "upstreamBatch"
# Others may write to the table as well: at last the whole log is read.
_LOOK_BACK = (16, 256, None)


def check_driver_session(spark: SparkSession) -> None:
    """Refuse a client of Spark Connect, which cannot give a commit of Delta's MERGE a name."""
    if is_client(spark):
        raise EnvironmentMissingError(
            "this Spark session is a client of Spark Connect",
            expected="with engine=merge, a session in the driver's own process",
            hint="run the job on the driver, with upstream.session()",
        )


class MergeSession:
    """A copy of a session, with its settings, views and functions, for one write.

    Delta takes a write's name from the session's settings, and threads share a session. So the copy alone has
    the name, and the original does not change. A query's batch has its fingerprint in the commit's user
    metadata.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        check_driver_session(spark)
        java_session: Any = spark._jsparkSession  # pyright: ignore[reportPrivateUsage] the only way there
        self._spark = spark
        self._jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage] the only way there
        self._path = path
        # Not wrapped as a session of Python's: to make one of those sets what Python takes for the session of all RDDs.
        self._java: Any = java_session.cloneSession()

    def table(self) -> DeltaTable:
        """Return the table; its operations run in the copy."""
        from delta.tables import DeltaTable

        return DeltaTable(self._spark, self._jvm.io.delta.tables.DeltaTable.forPath(self._java, self._path))

    def recorded(self, writer: str) -> int | None:
        """Return the number of a writer's last write in the table; None if there is none."""
        log: Any = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(self._java, self._path)
        found: Any = log._2().transactions().get(APP_PREFIX + writer)
        return int(found.get()) if found.isDefined() else None

    def fingerprint(self, writer: str) -> Fingerprint | None:
        """Return the fingerprint of a writer's last write; None if the log has none, or no longer."""
        number = self.recorded(writer)
        if number is None:
            return None
        for limit in _LOOK_BACK:
            history = (self.table().history() if limit is None else self.table().history(limit)).select("userMetadata")
            entries = history.collect()
            for entry in entries:
                metadata = _metadata_of(entry[0])
                if metadata.get("writer") == writer and metadata.get("number") == number:
                    return Fingerprint.of_number(int(metadata["fingerprint"]))
            if limit is None or len(entries) < limit:
                break
        return None

    def name(self, write: BatchIdentity) -> None:
        """Set this name for the writes of the copy."""
        conf: Any = self._java.conf()
        conf.set(_TXN_APP_ID, write.application)
        conf.set(_TXN_VERSION, str(write.number))
        if write.of_query:
            batch = {"writer": write.writer, "number": write.number, "fingerprint": write.fingerprint.number}
            metadata = {**_users(conf.get(_USER_METADATA, None)), _BATCH_KEY: batch}
            conf.set(_USER_METADATA, json.dumps(metadata))


def _users(metadata: str | None) -> dict[str, Any]:
    """Return the user's own metadata for every commit of the session."""
    if not metadata:
        return {}
    value = _parsed(metadata)
    return value if isinstance(value, dict) else {"userMetadata": metadata}


def _metadata_of(metadata: str | None) -> dict[str, Any]:
    value = _parsed(metadata or "")
    batch = value.get(_BATCH_KEY) if isinstance(value, dict) else None
    return batch if isinstance(batch, dict) else {}


def _parsed(metadata: str) -> Any:
    try:
        return json.loads(metadata)
    except ValueError:
        return None


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
    key: Key  # columns, or fields of columns
    time: str | None  # decides which of two rows is newer; if None, the later arrival is
    delete_when: str | None = None  # the column that marks deletions; the table does not have it

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        running = running_batch(batch.sparkSession)
        if running is None:
            raise OptionError(
                "the batch has no query",
                expected="a call from foreachBatch",
                hint="write the batch by upstream.write_batch, with txnAppId and txnVersion",
            )
        self.merge(batch, running.name._replace(number=batch_id))

    def merge(self, batch: DataFrame, name: BatchName | None) -> None:
        """Merge some rows, with or without the system column; once, if the write has a name.

        It is a TableError if the table has the number of this query's write, or a later one, and this is not a repeat.
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

    def _numbered(self, batch: DataFrame, name: BatchName) -> BatchIdentity:
        fields = [
            field for field in batch.schema.jsonValue()["fields"] if field["name"] not in (SYSTEM, self.delete_when)
        ]
        columns = json.dumps([[(field["name"], field["type"]) for field in fields], self.delete_when])
        fingerprint = Fingerprint.of(name.number, name.offsets, columns)
        return BatchIdentity(self.path, name.writer, name.number, fingerprint, name.of_query, one_of_several=True)

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
    """Return the merge, and rows with a deletion mark if any; refuse what a batch would, and `given` options."""
    check_driver_session(df.sparkSession)
    others = [name for name in given if name.lower() != "engine"]
    if others:
        raise OptionError(
            f"engine=merge has no option {', '.join(sorted(others))}",
            expected="path, key, eventTime and checkpointLocation: the owner of the table decides the rest",
            hint="remove it, or write to a table that UpStream makes",
        )
    if not key:
        raise OptionError(
            "the DataFrame has no update key",
            expected="the name of one of its columns, or several",
            hint='add key="…"',
        )
    keys = Key.given(key)
    place = absolute_location(path)
    fields = _fields(df.sparkSession, place)
    lowered = {name.lower() for name in fields}
    marks: str | None = None
    if deletes is not None:
        df, marks = with_deletions(df, deletes)
    kinds = {field["name"]: field["type"] for field in df.schema.jsonValue()["fields"]}
    kinds = {name: kind for name, kind in kinds.items() if name not in (SYSTEM, marks)}
    columns = list(kinds)
    keys = keys.resolved(tree_of(kinds))
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
            expected="Delta's jars and its package delta-spark, which engine=merge runs on",
            hint=f"make the session with upstream.session(), and run `{pip_install('merge')}`",
        ) from error
    properties = table.detail().select("properties").first()
    if properties is not None and LAYOUT_PROPERTY in (properties[0] or {}):
        raise TableError(
            f"the table at {place} is one of the sink's own",
            expected="with engine=merge a table that another program has laid out",
            hint="leave engine out: the sink writes this table many times faster",
        )
    return table.toDF().columns
