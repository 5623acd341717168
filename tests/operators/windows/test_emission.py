"""Which windows give a result: what a user writes, and what a plan has."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from upstream.conf.errors import OptionError
from upstream.operators.windows.emission import Emit, Output, arguments_for, emit_for, written


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
def test_each_emission_has_one_spelling(output: Any, early: bool, emit: Any, text: str) -> None:
    assert emit_for(output, early=early) == emit
    assert arguments_for(emit) == {"output": output, "early": early}
    assert written(emit) == text


def test_every_emission_can_be_asked_for() -> None:
    ways = [(output, early) for output in get_args(Output) for early in (False, True)]
    asked = [emit_for(output, early=early) for output, early in ways if (output, early) != ("eager", True)]
    assert sorted(asked) == sorted(get_args(Emit))


def test_eager_windows_have_no_early_results() -> None:
    with pytest.raises(OptionError, match=r"output='eager' with early=True.*leave early out"):
        emit_for("eager", early=True)


@pytest.mark.parametrize(("output", "early", "said"), [("lazy", False, "output='lazy'"), ("all", "yes", "early='yes'")])
def test_what_is_no_argument_is_refused_by_name(output: str, early: Any, said: str) -> None:
    with pytest.raises(OptionError, match=rf"{said}\. Expected: "):
        emit_for(output, early=early)
