"""From nodes to operators: each once, after its inputs."""

from __future__ import annotations

import subprocess
import sys

from upstream.queries.deltas.changes import Came, Everything
from upstream.queries.deltas.lowering import identity, parts
from upstream.queries.deltas.multiplicities import Multiplicities
from upstream.queries.deltas.state import State
from upstream.queries.deltas.stateless import Received, Together
from upstream.queries.deltas.windows import HopWindow, TimeWindow
from upstream.queries.relations.nodes import Changes, Hop, Range, SetOperation, Unbounded, Windowed

from .checking import S, compiled


def made(node, **options):
    return [(part, part.make(State.in_memory())) for part in parts(node, compiled, **options)]


def test_parts_come_after_their_inputs_and_equal_parts_have_equal_keys():
    one = Windowed(S, Range(3))
    plan = SetOperation(one, Windowed(S, Range(3)), "union", True)
    found = made(plan)
    keys = [part.key for part, _ in found]
    assert len(keys) == 5
    assert len(set(keys)) == 3
    for place, (part, _) in enumerate(found):
        assert set(part.inputs) <= set(keys[:place])
    assert isinstance(found[-1][1], Together)
    assert [part.stream for part, _ in found] == ["s", "", "s", "", ""]


def test_kinds_of_windows_and_changes():
    assert isinstance(made(Windowed(S, Hop(2, 2)))[-1][1], TimeWindow)
    assert isinstance(made(Windowed(S, Hop(2, 2, True)))[-1][1], HopWindow)
    relation = Windowed(S, Unbounded())
    assert isinstance(made(Changes(relation, "dstream"))[-1][1], Came)
    assert isinstance(made(Changes(relation, "rstream"))[-1][1], Everything)
    assert isinstance(made(SetOperation(relation, relation, "union", False))[-1][1], Multiplicities)


def test_what_is_given_ends_the_plan():
    relation = Windowed(S, Range(3))
    found = made(Changes(relation, "istream"), given=[relation])
    assert [type(operator) for _, operator in found] == [Received, Came]


def test_the_name_of_a_node_is_the_same_in_another_process():
    program = (
        "import pyarrow as pa\n"
        "from upstream.queries.deltas.lowering import identity\n"
        "from upstream.queries.relations.nodes import Range, Stream, Windowed\n"
        "print(identity(Windowed(Stream('s', pa.schema([('t', pa.int64())])), Range(3))))"
    )
    from pyarrow import int64, schema

    from upstream.queries.relations.nodes import Stream

    here = identity(Windowed(Stream("s", schema([("t", int64())])), Range(3)))
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
        == here
    )
    assert identity(Windowed(S, Range(3))) != identity(Windowed(S, Range(4)))
