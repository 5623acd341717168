import subprocess
import sys

import pyarrow as pa

from upstream.queries.deltas.lowering import identity, parts
from upstream.queries.relations.nodes import Changes, Range, SetOperation, Stream, Windowed

from .checking import S, compiled


def test_parts_come_after_their_inputs_and_equal_parts_have_equal_keys():
    plan = SetOperation(Windowed(S, Range(3)), Windowed(S, Range(3)), "union", True)
    found = list(parts(plan, compiled))
    keys = [part.key for part in found]
    assert keys[:2] == keys[2:4]
    assert len(set(keys)) == 3
    for place, part in enumerate(found):
        assert set(part.inputs) <= set(keys[:place])
    assert [part.stream for part in found] == ["s", "", "s", "", ""]


def test_what_is_given_ends_the_plan():
    relation = Windowed(S, Range(3))
    given, top = parts(Changes(relation, "istream"), compiled, given=[relation])
    assert (given.key, given.stream, given.inputs) == (identity(relation), "", ())
    assert top.inputs == (given.key,)


def test_the_name_of_a_node_is_the_same_in_another_process():
    program = (
        "import pyarrow as pa\n"
        "from upstream.queries.deltas.lowering import identity\n"
        "from upstream.queries.relations.nodes import Range, Stream, Windowed\n"
        "print(identity(Windowed(Stream('s', pa.schema([('t', pa.int64())])), Range(3))))"
    )
    here = identity(Windowed(Stream("s", pa.schema([("t", pa.int64())])), Range(3)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == here
    assert identity(Windowed(S, Range(3))) != identity(Windowed(S, Range(4)))
