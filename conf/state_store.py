"""The state store that stateful steps need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import EnvironmentMissingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PROVIDER", "ROCKSDB", "check_state_store"]

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Spark's default, and the only other provider that Spark has. Platforms have their own, which may do.
_WITHOUT_FAMILIES = "HDFSBackedStateStoreProvider"


def check_state_store(spark: SparkSession, step: str) -> None:
    """Raise EnvironmentMissingError if the state store is Spark's default, which cannot hold a stateful step's state.

    Spark refuses it only in the query's first batch. `step` is the first stateful step, for the message.
    """
    found = str(spark.conf.get(PROVIDER))
    if not found.endswith(_WITHOUT_FAMILIES):
        return
    raise EnvironmentMissingError(
        f"the session keeps state with {found}, and this step cannot: {step}",
        expected=f"{PROVIDER}={ROCKSDB}",
        hint=f'call spark.conf.set("{PROVIDER}", "{ROCKSDB}") before the query starts',
    )
