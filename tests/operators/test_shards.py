"""Operators in shards: the class of shards of each plan, and what workers receive to pack rows for them."""

import subprocess
import sys

import pyarrow as pa
import pytest
from kit.shards import CASES
from pyspark.cloudpickle import dumps

import upstream as us
from upstream.operators.runtime.shard import Shard
from upstream.operators.shards import shard_class, sharded
from upstream.plan.nodes import StatefulNode, walk
from upstream.testing import StreamTester

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.float64())])
STEPS = {
    "queue": lambda stream: stream.queue(budget=5),
    "windows": lambda stream: stream.window("10 minutes").agg(n=us.count()),
    "distinct": lambda stream: stream.distinct(),
}
_LOAD = """
import pickle, sys

(step,) = [step for _, step in pickle.load(sys.stdin.buffer)([0])]
print(*sorted({"upstream.operators.shards", "upstream.operators.compile"} & sys.modules.keys()))
"""


def _below(kind):
    return {each for below in kind.__subclasses__() for each in (below, *_below(below))}


def test_each_class_of_shards_has_a_case_in_the_kit():
    kinds = {shard_class(case.plan, versions=case.versions) for case in CASES.values()}
    assert {kind for kind in _below(Shard) if "step" in vars(kind)} == kinds


@pytest.mark.parametrize("name", STEPS)
def test_workers_receive_steps_that_do_not_import_the_compiler(name):
    made = []

    def steps(stream):
        made.append(STEPS[name](stream))
        return made[-1]

    StreamTester(steps, SCHEMA, key="k", event_time="at")
    (node,) = [each for each in walk(made[0].plan) if isinstance(each, StatefulNode)]
    packing = dumps(sharded(node, int).packing)
    done = subprocess.run([sys.executable, "-c", _LOAD], input=packing, capture_output=True, check=True)
    assert done.stdout.decode().strip() == ""
