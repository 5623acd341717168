"""`range` is `duration` now, and `emit` is `output` and `early`: the old names work, and warn."""

import re
import warnings
from typing import get_args

import pytest

import upstream as us
from upstream.conf.errors import OptionError
from upstream.operators.windows.emission import Emit, arguments_for, written
from upstream.testing import StreamTester


def plan_of(*args, **given):
    """The plan of windows that are asked for by some arguments."""
    plans = []

    def steps(stream):
        windows = stream.window(*args, **given).agg(n=us.aggregates.count())
        plans.append(windows.plan.specification)
        return windows

    StreamTester(steps, "k STRING, at TIMESTAMP, v DOUBLE", key="k", event_time="at")
    return plans[0]


def of_windows(seen):
    """The warnings that are about windows' arguments."""
    return [each for each in seen if "UpdateStream.window" in str(each.message)]


@pytest.mark.parametrize("emit", get_args(Emit))
def test_emit_gives_the_plan_of_output_and_early_and_says_what_to_write(emit):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=r"UpdateStream\.window")
        new = plan_of("10 minutes", "5 minutes", **arguments_for(emit))
    with pytest.warns(DeprecationWarning, match=rf"emit='{re.escape(emit)}'.*use {re.escape(written(emit))}$") as seen:
        old = plan_of("10 minutes", "5 minutes", emit=emit)
    assert [each.filename for each in of_windows(seen)] == [__file__]
    assert old.identity() == new.identity()
    assert new.identity()["emit"] == emit, "a checkpoint of an earlier release goes on"
    assert new.output_text == written(emit)


def test_latest_windows_are_the_default():
    assert plan_of("10 minutes").identity() == plan_of("10 minutes", output="latest", early=False).identity()


def test_range_is_duration_and_each_earlier_name_warns():
    with pytest.warns(DeprecationWarning, match="use duration=") as seen:
        old = plan_of(range="10 minutes", slide="5 minutes", emit="all")
    assert [each.filename for each in of_windows(seen)] == [__file__] * 2
    assert old.identity() == plan_of(duration="10 minutes", slide="5 minutes", output="all").identity()


@pytest.mark.parametrize(
    ("args", "given", "said"),
    [
        (("1 minute",), {"range": "1 minute"}, "both duration and range"),
        ((), {"duration": "1 minute", "range": "1 minute"}, "both duration and range"),
        (("1 minute",), {"output": "all", "emit": "all"}, "both output and emit"),
        (("1 minute",), {"early": True, "emit": "early"}, "both early and emit"),
        (("1 minute",), {"early": False, "output": "all", "emit": "all"}, "both output, early and emit"),
        (("1 minute",), {"emit": "sometimes"}, "emit='sometimes'"),
    ],
)
def test_both_names_of_an_argument_and_unknown_emissions_are_refused(args, given, said):
    with pytest.raises(OptionError, match=said):
        plan_of(*args, **given)


def test_an_unknown_name_is_refused():
    with pytest.raises(TypeError, match="outptu"):
        plan_of("1 minute", outptu="all")


def test_a_checkpoint_of_its_own_is_no_earlier_name(recwarn):
    plan_of("1 minute", checkpoint_location=None)
    assert of_windows(recwarn) == []
