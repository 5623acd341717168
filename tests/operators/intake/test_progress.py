import dataclasses

import pytest

from upstream import Watermark
from upstream.conf.errors import OptionError
from upstream.core.watermark.policies import Policy
from upstream.operators.intake.dataframe import on_demand_watermark
from upstream.operators.intake.progress import chosen_earlier, policy_of

SECOND = 1_000_000
TEN_MINUTES, HOUR = 600 * SECOND, 3600 * SECOND


EARLIER = Policy("bounded", TEN_MINUTES, 1000, HOUR, 5, 0.001)


@pytest.mark.parametrize(
    ("given", "changed", "spelt"),
    [
        ({"time": "t"}, {}, "event_time="),
        ({"progress": "ordered"}, {"name": "ordered"}, r"Watermark\.ordered"),
        ({"delay": "5 s"}, {"delay_us": 5 * SECOND}, r"Watermark\.bounded"),
        (
            {"progress": "adaptive", "target_late": 0.01, "delay": "5 s"},
            {"name": "adaptive", "delay_us": 5 * SECOND, "target_late": 0.01},
            r"Watermark\.adaptive\(late=target_late, first_delay=delay",
        ),
        (
            {"progress": "displaced", "displacement": 0},
            {"name": "displaced", "displacement": 0},
            r"Watermark\.displaced",
        ),
        ({"progress": "embedded"}, {"name": "embedded"}, "embedded"),
        ({"progress": "heartbeat"}, {"name": "heartbeat"}, r"Watermark\.arrival"),
        ({"progress": "latent"}, {"name": "latent"}, r"Watermark\.none"),
        ({"max_jump": "1 day", "confirmations": 9}, {"max_jump_us": 24 * HOUR, "confirmations": 9}, "guarded"),
    ],
)
def test_old_names_ask_for_the_policy_that_they_asked_for(given, changed, spelt):
    with pytest.warns(DeprecationWarning, match=spelt):
        time, watermark = chosen_earlier(None if "time" in given else "t", None, given)
    assert time == "t"
    assert policy_of(watermark, time) == dataclasses.replace(EARLIER, **changed)


def test_new_names_do_not_warn(recwarn):
    chosen = chosen_earlier("t", Watermark.bounded("5 s"), {})
    assert chosen == ("t", Watermark.bounded("5 s"))
    assert policy_of(None, "t").name == "bounded"
    assert policy_of(None, None).name == "latent"
    assert list(recwarn) == []


def test_both_names_and_no_name_are_refused():
    with pytest.raises(OptionError, match="both event_time and time"):
        chosen_earlier("t", None, {"time": "t"})
    with pytest.raises(OptionError, match="watermark is given beside progress, delay"):
        chosen_earlier("t", Watermark.ordered(), {"delay": "5 s", "progress": "bounded"})
    with pytest.raises(TypeError, match="unexpected keyword argument 'dealy'"):
        chosen_earlier("t", None, {"dealy": "5 s"})
    for given, message in (
        ({"progress": "sorted"}, "policy='sorted'"),
        ({"delay": "much"}, "delay='much'"),
        ({"confirmations": 0}, "confirmations=0"),
        ({"target_late": 1.5}, "late=1.5"),
    ):
        with pytest.raises(OptionError, match=message):
            chosen_earlier("t", None, given)


def test_on_demand_timestamps_that_make_no_sense_are_refused():
    for policy, idle, delay, match in (
        ("latent", "ets", None, "watermark"),
        ("ordered", "advance", None, "idle='advance'"),
        ("ordered", "wait", "1 s", "idle='wait'"),
        ("ordered", "ets", "soon", "ets_delay='soon'"),
    ):
        with pytest.raises(OptionError, match=match):
            on_demand_watermark(Policy(policy), idle, delay)
