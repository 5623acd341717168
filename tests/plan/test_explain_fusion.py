"""Which operators share a stage: same keys in the same shards, and nothing of Spark's between them."""

import pytest

from upstream.plan.explain import before_in_stage, fusable

from .building import intake, mapped, ordered, queue, rows, union, where, window


def test_an_operator_joins_the_one_before_it():
    first = window(rows())
    second = window(first)
    third = ordered(mapped(second))
    assert fusable(third) == {second, third}
    assert before_in_stage(second) is first
    assert before_in_stage(third) is second
    assert before_in_stage(first) is None


@pytest.mark.parametrize(
    ("why", "plan"),
    [
        ("what Spark computes lies between", window(where(window(rows())))),
        ("what Spark computes lies below a map", window(mapped(where(window(rows()))))),
        ("other shards", window(window(rows(), shards=8))),
        ("no shards of the key", window(ordered(rows(), shards=None))),
        ("it divides by other columns", ordered(window(rows()), shards=None)),
        ("two inputs", union(window(rows()), window(rows()))),
        ("ticks of its own", ordered(window(rows()), paced=True)),
        ("a queue has its own ticks", queue(window(rows()))),
        ("rows leave a queue at its own pace", window(queue(rows()))),
        ("an input is divided by feed", window(intake("a", shards=4))),
        ("nothing is before it", window(mapped(rows()))),
    ],
)
def test_one_that_cannot_has_a_stage_of_its_own(why, plan):
    assert not fusable(plan), why


def test_each_branch_of_a_union_is_looked_at():
    left, right = window(window(rows())), window(window(rows()))
    both = union(left, right)
    last = window(both)
    assert fusable(last) == {left, right, last}
