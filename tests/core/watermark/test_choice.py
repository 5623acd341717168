"""Watermark policies as objects: the options that they stand for, and what they refuse."""

import pytest

from upstream import Watermark
from upstream.conf.errors import OptionError
from upstream.datasource.registry import parse_source_options

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (Watermark.ordered(), {"name": "ordered"}),
        (Watermark.bounded("5 minutes"), {"name": "bounded", "delay_us": 300 * SECOND}),
        (Watermark.adaptive(late=0.01, first_delay="20 s"), {"name": "adaptive", "delay_us": 20 * SECOND}),
        (Watermark.adaptive(late=0.01), {"target_late": 0.01}),
        *((Watermark.displaced(rows), {"name": "displaced", "displacement": rows}) for rows in (0, 7)),
        (Watermark.embedded(), {"name": "embedded"}),
        (Watermark.arrival(), {"name": "arrival"}),
        (Watermark.none(), {"name": "none"}),
        (
            Watermark.ordered().guarded(max_jump="1 day", confirmations=9),
            {"name": "ordered", "max_jump_us": 86_400 * SECOND, "confirmations": 9},
        ),
    ],
)
def test_the_source_takes_what_they_stand_for(chosen, expected):
    common, _ = parse_source_options({"path": "/feed", "key": "k", "eventTime": "t", **chosen.options()})
    policy = common.policy()
    assert {name: getattr(policy, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Watermark.bounded("soon"), "delay='soon'"),
        (lambda: Watermark.bounded(5), "delay=5"),  # pyright: ignore[reportArgumentType]
        (lambda: Watermark.adaptive(late=0), "late=0"),
        (lambda: Watermark.adaptive(late=1), "late=1"),
        (lambda: Watermark.adaptive(first_delay=""), "first_delay=''"),
        (lambda: Watermark.displaced(-1), "rows=-1"),
        (lambda: Watermark.displaced(100_001), "rows=100001"),
        (lambda: Watermark.ordered().guarded(max_jump="far"), "max_jump='far'"),
        (lambda: Watermark.ordered().guarded(confirmations=0), "confirmations=0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(OptionError, match=message):
        make()
    assert Watermark.displaced(100_000).rows == 100_000
