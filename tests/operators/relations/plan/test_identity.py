import subprocess
import sys
import weakref
from dataclasses import replace
from typing import get_args

import pyarrow as pa
from kit.continuous import DOMAINS, FORMS, bound

from upstream.core.rows.key import Key
from upstream.expressions import nodes as expressions
from upstream.operators.relations.plan import nodes
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.identity import content, identity, remembered
from upstream.operators.relations.plan.nodes import StoredTable, Stream, TimeRange, UnboundedWindow, WindowOver


def test_no_name_depends_on_that_of_a_class():
    before = [identity(shareable(bound(sql).plan)) for sql in FORMS]
    kinds = [*get_args(nodes.Node), *get_args(nodes.Window), nodes.Order, nodes.Aggregation, nodes.StoredTable]
    kinds += [expressions.Call, expressions.Constant, expressions.Field, expressions.Days]
    names = [kind.__qualname__ for kind in kinds]
    try:
        for kind in kinds:
            kind.__qualname__ = f"New{kind.__name__}"
        assert [identity(shareable(bound(sql).plan)) for sql in FORMS] == before
    finally:
        for kind, name in zip(kinds, names, strict=True):
            kind.__qualname__ = name


def test_an_interval_of_days_is_no_other_interval_and_no_zero_the_other():
    kind = pa.duration("us")
    days, hours = expressions.Days(days=1), expressions.timedelta(hours=24)
    values = [(days, kind), (hours, kind), (0.0, pa.float64()), (-0.0, pa.float64()), (False, pa.bool_())]
    assert len({content(expressions.Constant(value, kind)) for value, kind in values}) == len(values)


def test_the_name_of_a_node_is_the_same_in_another_process():
    program = (
        "import pyarrow as pa\n"
        "from upstream.operators.relations.plan.identity import identity\n"
        "from upstream.operators.relations.plan.nodes import Stream, TimeRange, WindowOver\n"
        "print(identity(WindowOver(Stream('s', pa.schema([('t', pa.int64())])), TimeRange(3))))"
    )
    here = identity(WindowOver(Stream("s", pa.schema([("t", pa.int64())])), TimeRange(3)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == here
    assert identity(WindowOver(DOMAINS, TimeRange(3))) != identity(WindowOver(DOMAINS, TimeRange(4)))


def test_versions_of_a_table_do_not_share_what_is_computed_of_them():
    tables = [None, StoredTable("/t", "x", 1), StoredTable("/t", "x", 2), StoredTable("/t", "y", 1)]
    assert len({identity(WindowOver(replace(DOMAINS, table=each), UnboundedWindow())) for each in tables}) == 4


class Node:
    """Equal to all others."""

    def __eq__(self, other):
        return True

    __hash__ = None


class Answer:
    pass


def test_each_node_is_looked_at_once_and_an_equal_one_again():
    answer = remembered(lambda _: Answer())
    one, two = Node(), Node()
    assert answer(one) is answer(one)
    assert answer(two) is answer(two)
    assert answer(one) is not answer(two)


def test_what_is_known_of_a_node_goes_with_it():
    answer = remembered(lambda _: Answer())
    one, two = Node(), Node()
    kept, gone = answer(one), weakref.ref(answer(two))
    two = Node()  # often in the place of the former one
    assert gone() is None
    assert answer(two) is not kept
    assert answer(one) is kept


def test_a_stream_read_from_a_checkpoint_is_the_one_that_its_statement_names():
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    assert Stream("s", schema, ("k",), "t") == Stream("s", schema, Key(("k",)), "t")
