"""`range` is `duration` now, and `emit` is `output` and `early`: the old names work, and warn."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

import upstream as us
from upstream.conf.errors import OptionError
from upstream.operators.windows.shards.plan import WindowPlan
from upstream.testing import StreamTester

TODAY: dict[str, tuple[dict[str, Any], str]] = {
    "lazy": ({"output": "latest"}, "output='latest'"),
    "all": ({"output": "all"}, "output='all'"),
    "eager": ({"output": "eager"}, "output='eager'"),
    "early": ({"output": "latest", "early": True}, "output='latest', early=True"),
    "all+early": ({"output": "all", "early": True}, "output='all', early=True"),
}


def plan_of(*args: Any, **given: Any) -> WindowPlan:
    """The plan of windows that are asked for by some arguments."""
    plans: list[WindowPlan] = []

    def steps(stream: Any) -> Any:
        windows = stream.window(*args, **given).agg(n=us.aggregates.count())
        plans.append(windows.plan.specification)
        return windows

    StreamTester(steps, "k STRING, at TIMESTAMP, v DOUBLE", key="k", event_time="at")
    return plans[0]


def of_windows(seen: pytest.WarningsRecorder) -> list[warnings.WarningMessage]:
    """The warnings that are about windows' arguments."""
    return [each for each in seen if "UpdateStream.window" in str(each.message)]


@pytest.mark.parametrize("emit", TODAY)
def test_emit_gives_the_plan_of_output_and_early_and_says_what_to_write(emit: str) -> None:
    today, text = TODAY[emit]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=r"UpdateStream\.window")
        new = plan_of("10 minutes", "5 minutes", **today)
    message = rf"^UpdateStream\.window\(emit='{re.escape(emit)}'\) is deprecated .*: use {re.escape(text)}$"
    with pytest.warns(DeprecationWarning, match=message) as seen:
        old = plan_of("10 minutes", "5 minutes", emit=emit)
    assert [each.filename for each in of_windows(seen)] == [__file__]
    assert old.identity() == new.identity()
    assert new.identity()["emit"] == emit, "a checkpoint of an earlier release goes on"
    assert new.output_text == text


def test_latest_windows_are_the_default() -> None:
    assert plan_of("10 minutes").identity() == plan_of("10 minutes", output="latest", early=False).identity()


def test_range_is_duration() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"^UpdateStream\.window\(range=…\) is deprecated .*: use duration=$"
    ) as seen:
        old = plan_of(range="10 minutes", slide="5 minutes")
    assert [each.filename for each in of_windows(seen)] == [__file__]
    assert old.identity() == plan_of(duration="10 minutes", slide="5 minutes").identity()


def test_both_earlier_names_warn_each() -> None:
    with pytest.warns(DeprecationWarning, match="is deprecated") as seen:
        old = plan_of(range="10 minutes", emit="all")
    assert len(of_windows(seen)) == 2
    assert old.identity() == plan_of("10 minutes", output="all").identity()


@pytest.mark.parametrize(
    ("args", "given", "said"),
    [
        (("1 minute",), {"range": "1 minute"}, "both duration and range are given"),
        ((), {"duration": "1 minute", "range": "1 minute"}, "both duration and range are given"),
        (("1 minute",), {"output": "all", "emit": "all"}, "both output and emit are given"),
        (("1 minute",), {"output": "latest", "emit": "all"}, "both output and emit are given"),
        (("1 minute",), {"early": True, "emit": "early"}, "both early and emit are given"),
        (("1 minute",), {"early": False, "output": "all", "emit": "all"}, "both output, early and emit are given"),
    ],
)
def test_both_names_of_an_argument_are_refused(args: Any, given: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        plan_of(*args, **given)


def test_an_unknown_emission_is_refused() -> None:
    with pytest.raises(OptionError, match=r"emit='sometimes'\. Expected: one of all, lazy.*write output and early"):
        plan_of("1 minute", emit="sometimes")


def test_eager_with_early_is_refused() -> None:
    with pytest.raises(OptionError, match="output='eager' with early=True"):
        plan_of("1 minute", output="eager", early=True)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"UpdateStream\.window\(\) got an unexpected keyword argument 'outptu'"):
        plan_of("1 minute", outptu="all")


def test_a_checkpoint_of_its_own_is_no_earlier_name(recwarn: pytest.WarningsRecorder) -> None:
    plan_of("1 minute", checkpoint_location=None)
    assert of_windows(recwarn) == []
