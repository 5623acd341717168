"""Waiting for what must come: for a condition, not for a time."""

import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], object], ended: Callable[[], object] = lambda: None, what: str = "what is waited for"
) -> None:
    """Return when the condition holds.

    Parameters
    ----------
    condition : callable
    ended : callable
        Returns something other than None when the condition cannot come to hold any more: `process.poll`,
        `query.exception`.
    what : str
        The name of the condition, for the failure.
    """
    # Four busy loops beside two test processes make a machine ten times as slow; pytest's own limit is longer.
    end = time.monotonic() + 900
    while not condition():
        over = ended()
        assert over is None, f"{what} did not come, and it ended: {over}"
        assert time.monotonic() < end, f"{what} does not come"
        time.sleep(0.05)
