import pytest

from upstream.cli.live import feed_lines, waits_for
from upstream.sink.figures.summary import CommitSummary

from .commits import commit

S = 1_000_000


def offset(**bounds: int | None) -> dict[str, object]:
    return {
        "progress": {f"/in/{feed}": {"bound": bound} for feed, bound in bounds.items()},
        "heard": {f"/in/{feed}": 10 * S for feed in bounds},
        "ended": ["/in/over"],
    }


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"a": 100 * S}, ""),
        ({"a": 100 * S, "b": 100 * S + 1}, ""),
        ({"a": 100 * S, "b": None}, ""),
        ({"a": 100 * S, "over": 0}, ""),
        ({"a": 100 * S, "b": 70 * S}, "1 feed waits for b, 30.0 s behind, silent for 5.0 s"),
        ({"a": 100 * S, "b": 70 * S, "c": 80 * S}, "2 feeds wait for b, 30.0 s behind, silent for 5.0 s"),
    ],
)
def test_who_waits_for_whom(bounds, expected):
    assert waits_for(offset(**bounds), 15 * S) == expected


def marks(at_s: int, **low: int | None) -> CommitSummary:
    least = min((bound for bound in low.values() if bound is not None), default=None)
    return commit(at_s, committed_at_us=at_s * S, low_watermarks=low, low_watermark=least)


def test_a_line_for_each_feed_reports_which_holds_the_others_back_and_how_long():
    summaries = [marks(0, a=1, b=5, c=None), marks(10, a=2, b=6, c=None), marks(40, a=2, b=7, c=None)]
    assert feed_lines(summaries) == [
        "a: complete to 2; the others wait for it, where it has been for 30.0 s",
        "b: complete to 7",
        "c: ended",
    ]
    assert feed_lines([marks(0, a=2, b=2)]) == ["a: complete to 2", "b: complete to 2"]
    assert waits_for({}, 0) == ""
    assert feed_lines([]) == []
    assert feed_lines([commit(0)]) == []
