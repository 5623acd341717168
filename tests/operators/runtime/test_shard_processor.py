import subprocess
import sys

from pyspark.cloudpickle import dumps

from upstream.operators.runtime.pack import rows_to_frame
from upstream.operators.runtime.shard_processor import Next, ShardProcessor, SparkShards

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

    def batch(self, shard, store, rows):
        del shard, store, rows


def test_a_process_that_opens_states_imports_nothing_of_what_computes():
    shards = SparkShards([3, 5], Nothing(), [Next(lambda _: rows_to_frame, Nothing())], rows_to_frame)
    pickled = dumps(shards)
    done = subprocess.run([sys.executable, "-c", _INIT], input=pickled, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == [
        "nothing; kind STRING, page INT; value BINARY",
        "nothing_1; kind STRING, page INT; value BINARY",
        "",
        "upstream.operators.runtime upstream.operators.runtime.shard_processor",
    ]
