"""Which windows give a result: what a user writes, and what a plan has."""

import pytest

from upstream.operators.windows.emission import emit_for, written


@pytest.mark.parametrize(
    ("output", "early", "emit", "text"),
    [
        ("latest", False, "lazy", "output='latest'"),
        ("latest", True, "early", "output='latest', early=True"),
        ("all", False, "all", "output='all'"),
        ("all", True, "all+early", "output='all', early=True"),
        ("eager", False, "eager", "output='eager'"),
    ],
)
def test_each_emission_has_one_spelling(output, early, emit, text):
    assert emit_for(output, early=early) == emit
    assert written(emit) == text
