"""The state store that steps with state need, on a classic session."""

import pytest
from kit.feeds import csv_feed, write_csv

import upstream
from upstream.conf.errors import EnvironmentMissingError
from upstream.conf.session import PROVIDER, ROCKSDB, check_state_store


def test_the_default_state_store_is_refused_before_anything_is_written(spark, tmp_path):
    write_csv(tmp_path / "feed" / "0.csv", "key,ms,value", [("a", 1, 1)])
    stream = upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
    spark.conf.unset(PROVIDER)
    try:
        spark.conf.set(PROVIDER, ROCKSDB.replace("RocksDB", "HDFSBacked"))
        with pytest.raises(EnvironmentMissingError, match=r"HDFSBacked\w+, and this step cannot: queue") as refused:
            stream.queue().write(tmp_path / "table", checkpoint=tmp_path / "checkpoint")
        assert refused.value.expected == f"{PROVIDER}={ROCKSDB}"
        assert not (tmp_path / "checkpoint").exists()
        stream.write(tmp_path / "table", checkpoint=tmp_path / "checkpoint")  # without state any will do
    finally:
        spark.conf.set(PROVIDER, ROCKSDB)
    check_state_store(spark, "queue")
