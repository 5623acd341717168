import pyarrow as pa

from upstream.operators.relations import operator as module
from upstream.operators.relations.operator import computed, remembered

from .checking import constant


class Node:
    """Equal to all others."""

    def __eq__(self, other):
        return True

    __hash__ = None


def test_each_node_is_looked_at_once_and_an_equal_one_again(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 2)
    asked: list[int] = []
    place = remembered(lambda node: asked.append(id(node)) or len(asked))
    one, two, three = Node(), Node(), Node()
    assert [place(each) for each in (one, two, one, two)] == [1, 2, 1, 2]
    assert [place(each) for each in (three, three, one)] == [3, 3, 4]


def test_zeros_of_both_signs_are_compiled_each_by_itself():
    zero, less = (computed(constant(each, pa.float64()), pa.schema([])) for each in (0.0, -0.0))
    assert zero is computed(constant(0.0, pa.float64()), pa.schema([]))
    assert zero is not less
