import sys
import threading

import pytest

from upstream.conf.deep_stack import on_deep_stack


def levels(left: int) -> int:
    return 0 if left == 0 else 1 + levels(left - 1)


def test_the_same_depth_whoever_calls_and_no_limit_is_left_behind():
    before = sys.getrecursionlimit(), threading.stack_size()

    def caller(left: int) -> int:
        return on_deep_stack(lambda: levels(20_000)) if left == 0 else caller(left - 1)

    assert caller(before[0] // 2) == 20_000
    assert on_deep_stack(lambda: on_deep_stack(threading.get_ident) == threading.get_ident())
    with pytest.raises(RecursionError):
        on_deep_stack(lambda: levels(10**6))
    with pytest.raises(KeyError, match="mine"):
        on_deep_stack(lambda: {}["mine"])
    assert (sys.getrecursionlimit(), threading.stack_size()) == before
