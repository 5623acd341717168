"""What it would take to keep a target, against queues whose staleness is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.units import StalenessTarget
from upstream.core.feedback.ages import Staleness


def served(keys: int, rows_per_s: float, batch_s: float) -> Staleness:
    """Ages at commit where every key always waits and is served in turn: a round, and the batch."""
    age = keys / rows_per_s + batch_s
    return Staleness(age, age, age, age)


@given(
    keys=st.integers(1, 10**6),
    rows_per_s=st.floats(1, 1e6),
    batch_s=st.floats(0.001, 60),
    bound_ms=st.integers(1, 10**6),
    figure=st.sampled_from(["mean", "p50", "p99", "max"]),
)
def test_with_what_is_needed_the_bound_is_met_and_with_less_it_is_not(keys, rows_per_s, batch_s, bound_ms, figure):
    target = StalenessTarget.parse(f"{figure} <= {bound_ms} ms")
    needed = target.needed_rows_per_s(served(keys, rows_per_s, batch_s), batch_s, rows_per_s)
    if needed is None:
        assert not target.met(served(keys, 1e12 * keys, batch_s)) or bound_ms / 1e3 == pytest.approx(batch_s)
        return
    assert target.met(served(keys, needed * 1.0001, batch_s)) or bound_ms / 1e3 == pytest.approx(batch_s, rel=1e-2)
    assert not target.met(served(keys, needed * 0.999, batch_s)) or keys / needed < 1e-2


def test_a_queue_of_a_thousand_keys():
    target = StalenessTarget.parse("p99 < 3 s")
    # 1,000 keys at 100 a second, in batches of a second: 11 s; two seconds of waiting are allowed.
    assert target.needed_rows_per_s(served(1000, 100, 1), 1, 100) == pytest.approx(500)
    assert target.needed_rows_per_s(served(1000, 100, 3), 3, 100) is None
