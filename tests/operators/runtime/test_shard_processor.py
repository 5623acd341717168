"""The processor that Spark pickles."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.cloudpickle import dumps
from pyspark.sql import Row

from upstream.operators.runtime.pack import rows_to_frame
from upstream.operators.runtime.shard_processor import Next, ShardProcessor, SparkShards
from upstream.operators.runtime.store import Store

_INIT = """
import pickle, sys

class Handle:
    def getMapState(self, name, key, value):
        print(name, key, value, sep="; ")

pickle.load(sys.stdin.buffer).init(Handle())
print(*sorted({each.partition(".")[0] for each in sys.modules} & {"polars", "pyarrow", "pandas"}))
print(*sorted(each for each in sys.modules if each.startswith("upstream.operators.")))
"""


class Nothing(ShardProcessor):
    state = "nothing"

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        del shard, store, rows


def test_a_process_that_opens_states_imports_nothing_of_what_computes() -> None:
    shards = SparkShards([3, 5], Nothing(), [Next(lambda _: rows_to_frame, Nothing())], rows_to_frame)
    pickled = dumps(shards)
    done = subprocess.run([sys.executable, "-c", _INIT], input=pickled, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == [
        "nothing; kind STRING, page INT; value BINARY",
        "nothing_1; kind STRING, page INT; value BINARY",
        "",
        "upstream.operators.runtime upstream.operators.runtime.shard_processor",
    ]
