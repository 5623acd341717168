"""A death right after a step of a batch, in the process of the test."""

import contextlib
from collections.abc import Iterator

import pytest
from kit.deaths import ProcessDied

from upstream.sink.spec import steps
from upstream.sink.spec.steps import CommitStep


@contextlib.contextmanager
def dying_at(step: CommitStep | None) -> Iterator[None]:
    def reached(at: CommitStep) -> None:
        if at is step:
            raise ProcessDied

    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(ProcessDied):
        patched.setattr(steps, "reached", reached)
        yield
