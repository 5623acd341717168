"""What a pattern accepts is the time that Python's strptime makes of it, to the microsecond."""

import datetime as dt

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.core.rows.event_times import NO_TIME, event_time_us
from upstream.core.rows.time_patterns import time_pattern

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
PATTERNS = [
    "%Y-%m-%d %H:%M:%S", "%d/%m/%Y %H:%M", "%Y%m%d%H%M%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S,%f%z",
    "%Y%m%d%H%M%S%f", "%y%m%d", "%d-%b-%Y %I:%M:%S %p", "%A, %d. %B %Y %I%p", "%a %b %d %H:%M:%S %z %Y", "%Y-%j",
    "%j %y %H", "%Y-%m-%d %H:%M:%S.%f%%", "%%S.%f %Y-%m-%d", "100%% %Y.%m.%d", "%Y-%m", "%Y",
    "[%d/%b/%Y:%H:%M:%S %z]", "%m/%d/%Y  %I:%M", "%d%m%y", "%H %Y (%m)", "%d %Y",
]  # fmt: skip
TIMES = st.datetimes(
    min_value=dt.datetime(1000, 1, 1),
    timezones=st.sampled_from([dt.timezone.utc, dt.timezone(dt.timedelta(hours=-9.5))]),
)
EDITS = st.tuples(
    st.integers(0, 40),
    st.sampled_from(["", "0", "1", "6", "9", " ", "  ", "+", "Z", ":", ".", "pm", "T"]),
    st.integers(0, 2),
)


def python_us(text: str, pattern: str) -> int:
    try:
        time = dt.datetime.strptime(text, pattern)
    except ValueError:
        return NO_TIME
    return (time.replace(tzinfo=time.tzinfo or dt.timezone.utc) - EPOCH) // dt.timedelta(microseconds=1)


@given(
    pattern=st.sampled_from(PATTERNS), times=st.lists(TIMES, min_size=1, max_size=5), edits=st.lists(EDITS, max_size=2)
)
@example(
    "%Y-%m-%d %H:%M:%S", [dt.datetime(2024, 2, 29, 12, 0, 59, tzinfo=dt.timezone.utc)], [(17, "6", 1), (18, "0", 1)]
)
@example("%Y-%j", [dt.datetime(2023, 12, 31, tzinfo=dt.timezone.utc)], [(7, "6", 1)])
def test_a_text_is_the_time_that_strptime_makes_of_it(pattern, times, edits):
    texts = [time.strftime(pattern) for time in times]
    edited = texts[0]
    for place, more, less in edits:
        edited = edited[:place] + more + edited[place + less :]
    texts.append(edited)
    found = event_time_us(pa.array([*texts, None]), pattern, "UTC").tolist()
    assert found == [*(python_us(text, pattern) for text in texts), NO_TIME]


@pytest.mark.parametrize("digits", ["9", "90", "900", "900000", "000001", "9000000", ""])
def test_a_fraction_counts_from_its_left(digits):
    text, pattern = f"2024-01-01 00:00:00.{digits}", "%Y-%m-%d %H:%M:%S.%f"
    assert event_time_us(pa.array([text]), pattern, "UTC").tolist() == [python_us(text, pattern)]


@pytest.mark.parametrize(
    "pattern",
    ["%F %T", "%Y-%m-%d %s", "%+", "%Y-%U-%w", "%G-%V-%u", "%c", "%x", "%Y-%m-%d %X", "%Y-%m-%d %Z", "%Y-%m-%d %.f",
     "%Y-%m-%d %3f", "%Y-%m-%e", "%Y-%m-%d%", "%Y %Y-%m", "%Y %y-%m", "%H:%M", "%Y-%j-%d", "%Y-%m-%d %H %I"],
)  # fmt: skip
def test_other_patterns_are_refused(pattern):
    with pytest.raises(OptionError, match="the time pattern"):
        time_pattern(pattern)


def test_texts_of_full_width_and_others_mix():
    texts = pl.Series(["2024-01-02 03:04:05", "2024-1-2 3:4:5", "2024-02-30 00:00:00", None, "x"])
    micros = time_pattern("%Y-%m-%d %H:%M:%S").parse(texts).cast(pl.Int64).to_list()
    assert micros == [1_704_164_645_000_000] * 2 + [None] * 3
    assert np.all(event_time_us(texts.to_arrow().cast(pa.string()), "%Y-%m-%d %H:%M:%S", "UTC")[2:] == NO_TIME)
