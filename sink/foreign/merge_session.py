"""A copy of a Spark session in which one MERGE runs under its name, and the table's record of earlier ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...conf.connect_client import is_client
from ...conf.errors import EnvironmentMissingError
from ..commit.batch_identity import Fingerprint, NumberedWrite
from ..figures.summary import APP_PREFIX

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import SparkSession

__all__ = ["MergeSession", "check_driver_session"]

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

    def name(self, write: NumberedWrite) -> None:
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
