import dataclasses

import pytest

from upstream import Watermark
from upstream.conf.errors import OptionError
from upstream.core.watermark.policies import Policy
from upstream.operators.ingest.dataframe import on_demand_watermark
from upstream.operators.ingest.plan import policy_of

SECOND = 1_000_000
TEN_MINUTES, HOUR = 600 * SECOND, 3600 * SECOND


@pytest.mark.parametrize(
    ("watermark", "changed"),
    [
        (None, {}),
        (Watermark.ordered(), {"name": "ordered"}),
        (Watermark.bounded("5 s"), {"delay_us": 5 * SECOND}),
        (Watermark.adaptive(late=0.01), {"name": "adaptive", "target_late": 0.01}),
        (Watermark.displaced(0), {"name": "displaced", "displacement": 0}),
        (
            Watermark.bounded("10 minutes").guarded(max_jump="1 day", confirmations=9),
            {"max_jump_us": 24 * HOUR, "confirmations": 9},
        ),
    ],
)
def test_a_watermark_is_a_policy(watermark, changed):
    assert policy_of(watermark, "t") == dataclasses.replace(
        Policy("bounded", TEN_MINUTES, 1000, HOUR, 5, 0.001), **changed
    )


def test_without_an_event_time_there_is_no_watermark():
    assert policy_of(None, None).name == "none"


def test_on_demand_timestamps_that_make_no_sense_are_refused():
    for policy, idle, delay, match in (
        ("none", "ets", None, "watermark"),
        ("ordered", "advance", None, "idle='advance'"),
        ("ordered", "wait", "1 s", "idle='wait'"),
        ("ordered", "ets", "soon", "ets_delay='soon'"),
    ):
        with pytest.raises(OptionError, match=match):
            on_demand_watermark(Policy(policy), idle, delay)
