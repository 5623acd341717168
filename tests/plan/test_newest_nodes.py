"""Steps over the newest row of each key."""

import pytest

from upstream.plan.newest_nodes import GroupBy, LatestJoin
from upstream.plan.nodes import Node

from .building import FIXED, Spec, queue, rows, window


def joined() -> Node:
    return LatestJoin(*FIXED, inputs=(rows(), rows()), specification=Spec())


def grouped() -> Node:
    return GroupBy(*FIXED, inputs=(rows(),), specification=Spec())


@pytest.mark.parametrize("changes", [joined(), grouped()], ids=["joined", "grouped"])
def test_results_take_the_place_of_earlier_ones_until_windows_are_made_of_them(changes):
    assert changes.retracts
    assert queue(changes).retracts
    assert not window(changes).retracts
