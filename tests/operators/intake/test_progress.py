"""What a DataFrame's reader says of progress, in today's names and in those of earlier releases."""

from __future__ import annotations

from typing import Any

import pytest

from upstream import Watermark
from upstream.conf.errors import OptionError
from upstream.core.watermark.policies import Policy
from upstream.operators.intake.progress import chosen_earlier, policy_of

SECOND = 1_000_000
TEN_MINUTES, HOUR = 600 * SECOND, 3600 * SECOND


@pytest.mark.parametrize(
    ("given", "expected", "spelt"),
    [
        ({"time": "t"}, Policy("bounded", TEN_MINUTES, 1000, HOUR, 5, 0.001), None),
        ({"progress": "ordered"}, Policy("ordered", TEN_MINUTES, 1000, HOUR, 5, 0.001), r"Watermark\.ordered\(\)"),
        ({"delay": "5 s"}, Policy("bounded", 5 * SECOND, 1000, HOUR, 5, 0.001), r"Watermark\.bounded\(delay\)"),
        (
            {"progress": "adaptive", "target_late": 0.01, "delay": "5 s"},
            Policy("adaptive", 5 * SECOND, 1000, HOUR, 5, 0.01),
            r"Watermark\.adaptive\(late=target_late, first_delay=delay\)",
        ),
        (
            {"progress": "displaced", "displacement": 0},
            Policy("displaced", TEN_MINUTES, 0, HOUR, 5, 0.001),
            r"Watermark\.displaced\(displacement\)",
        ),
        ({"progress": "embedded"}, Policy("embedded", TEN_MINUTES, 1000, HOUR, 5, 0.001), "embedded"),
        ({"progress": "heartbeat"}, Policy("heartbeat", TEN_MINUTES, 1000, HOUR, 5, 0.001), r"Watermark\.arrival\(\)"),
        ({"progress": "latent"}, Policy("latent", TEN_MINUTES, 1000, HOUR, 5, 0.001), r"Watermark\.none\(\)"),
        (
            {"max_jump": "1 day", "confirmations": 9},
            Policy("bounded", TEN_MINUTES, 1000, 24 * HOUR, 9, 0.001),
            r"guarded\(max_jump=max_jump, confirmations=confirmations\)",
        ),
    ],
)
def test_old_names_ask_for_the_policy_that_they_asked_for(given: Any, expected: Policy, spelt: str | None) -> None:
    """As the earlier release made it of them: its own policies, written out."""
    with pytest.warns(DeprecationWarning, match=spelt or "use event_time="):
        time, watermark = chosen_earlier(None if "time" in given else "t", None, given)
    assert time == "t"
    assert policy_of(watermark, time) == expected


def test_new_names_do_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    chosen = chosen_earlier("t", Watermark.bounded("5 s"), {})
    assert chosen == ("t", Watermark.bounded("5 s"))
    assert policy_of(None, "t").name == "bounded"
    assert policy_of(None, None).name == "latent"
    assert list(recwarn) == []


def test_both_names_and_no_name_are_refused() -> None:
    with pytest.raises(OptionError, match="both event_time and time"):
        chosen_earlier("t", None, {"time": "t"})
    with pytest.raises(OptionError, match="watermark is given beside progress, delay"):
        chosen_earlier("t", Watermark.ordered(), {"delay": "5 s", "progress": "bounded"})
    with pytest.raises(TypeError, match="unexpected keyword argument 'dealy'"):
        chosen_earlier("t", None, {"dealy": "5 s"})  # pyright: ignore[reportArgumentType]
    for given, message in (
        ({"progress": "sorted"}, "policy='sorted'"),
        ({"delay": "much"}, "delay='much'"),
        ({"confirmations": 0}, "confirmations=0"),
        ({"target_late": 1.5}, "late=1.5"),
    ):
        with pytest.raises(OptionError, match=message):
            chosen_earlier("t", None, given)  # pyright: ignore[reportArgumentType]
