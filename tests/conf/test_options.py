"""Options: every problem in one error, the nearest name, types."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream import latest, write_batch, write_latest
from upstream.conf.errors import OptionError
from upstream.conf.options import (
    boolean,
    bytes_argument,
    count_argument,
    duration_us,
    names_argument,
    one_of,
    option,
    parse_options,
    path_argument,
    positive_int,
    text_argument,
    whole_argument,
)
from upstream.conf.units import format_duration_us, parse_bytes, parse_duration_us
from upstream.core.rows.key import KEY_OPTION
from upstream.sink.admin.layout_change import change_history, rebucket_table


@dataclasses.dataclass(frozen=True)
class Group:
    key: tuple[str, ...] = option("key", KEY_OPTION, (), "Key.")
    rows: int | None = option("maxRowsPerTrigger", positive_int(), None, "Rows.")
    delay_us: int = option("watermarkDelay", duration_us(), 5, "Delay.")
    mode: str = option("mode", one_of("lazy", "eager"), "lazy", "Mode.")
    on: bool = option("on", boolean(), False, "On.")


def test_names_are_case_insensitive_and_values_typed():
    (group,) = parse_options({"MAXROWSPERTRIGGER": "7", "watermarkdelay": "10 minutes", "On": "TRUE"}, [Group])
    assert group == Group(rows=7, delay_us=600_000_000, on=True)


def test_every_problem_is_in_one_error_with_the_nearest_name():
    with pytest.raises(OptionError) as caught:
        parse_options(
            {"maxRowsPerTriger": "7", "watermarkDelay": "soon", "mode": "eagr", "keys": "a", "speed": "2"},
            [Group],
            elsewhere={"speed": "belongs to connector=replay"},
        )
    message = str(caught.value)
    for part in ("'maxRowsPerTrigger'?", "watermarkDelay='soon'", "'eager'?", "'key'?", "belongs to connector=replay"):
        assert part in message


@pytest.mark.parametrize(
    ("text", "names"),
    [("a", ("a",)), (" a , b ", ("a", "b")), ("`a,b`,c", ("a,b", "c")), ("id.orig_h", ("id.orig_h",))],
)
def test_column_lists(text, names):
    assert parse_options({"key": text}, [Group])[0].key == names


@pytest.mark.parametrize("text", ["", "a,", ",a", "a,a", "`a"])
def test_column_lists_refused(text):
    with pytest.raises(OptionError, match="key="):
        parse_options({"key": text}, [Group])


@given(st.integers(0, 10**9))
def test_durations_and_sizes_read_back(number):
    assert parse_duration_us(f"{number} ms") == number * 1000
    assert parse_bytes(f"{number}") == number
    assert parse_duration_us("1h 30m") == 5_400_000_000
    assert parse_bytes("32 MB") == 32 << 20


@pytest.mark.parametrize("text", ["", "10", "ten s", "10 parsecs", "s", "10 s x", "9" * 400 + " s"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_us(text)


def test_durations_for_people():
    assert [format_duration_us(value) for value in (340e3, 2.1e6, 185e6, 7620e6)] == [
        "340 ms", "2.1 s", "3 min 05 s", "2 h 07 min",
    ]  # fmt: skip


class Frame:
    """Stands where no frame is looked at: the arguments are refused before."""


def test_numbers_and_sizes_are_taken_as_text_too():
    assert [whole_argument("buckets", each) for each in (None, 2, "2", " 16 ")] == [None, 2, 2, 16]
    assert [bytes_argument("limit", each) for each in (None, 7, "7", "2 kB", "1 MB")] == [None, 7, 7, 2048, 1 << 20]


WRONG = [(taken, value) for taken in (whole_argument, bytes_argument) for value in (0, -1, "0", "two", True, [2], "")]


@pytest.mark.parametrize(
    ("taken", "value"), [*WRONG, (whole_argument, 2.5), (bytes_argument, "0 MB"), (bytes_argument, "5 meters")]
)
def test_what_is_no_number_or_no_size_is_refused_by_name(taken, value):
    with pytest.raises(OptionError, match="limit="):
        taken("limit", value)


def test_texts_paths_and_names():
    assert (text_argument("time", "t"), text_argument("time", None)) == ("t", None)
    assert path_argument("path", Path("a")) == path_argument("path", "a") == "a"
    assert [names_argument("key", each) for each in (None, "k", ["a", "b"])] == [None, "k", ["a", "b"]]
    for wrong in (5, " ", ["t"]):
        with pytest.raises(OptionError, match="time="):
            text_argument("time", wrong)
    for wrong in (None, 5, "", b"x"):
        with pytest.raises(OptionError, match="path="):
            path_argument("path", wrong)
    for wrong in (5, [], ["a", 1], {"a": "b"}, [""]):
        with pytest.raises(OptionError, match="key="):
            names_argument("key", wrong)


@pytest.mark.parametrize("write", [write_latest, write_batch])
@pytest.mark.parametrize(
    ("name", "value"),
    [("buckets", "two"), ("partitions", 0), ("expected_keys", "many"), ("key", 5), ("event_time", 5), ("path", None)],
)
def test_writers_refuse_at_once(write, name, value):
    given = {"path": "table", "key": "k", name: value}
    with pytest.raises(OptionError, match=f"{name}="):
        write(Frame(), **given)


def test_others_refuse_at_once(tmp_path):
    with pytest.raises(OptionError, match="target="):
        write_latest(Frame(), "table", key="k", target=5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="buckets='two'"):
        rebucket_table(str(tmp_path), "two")  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="history=5"):
        change_history(str(tmp_path), 5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="key=5"):
        latest(Frame(), key=5)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", ["4", 4.0, True, None, -1, 1])
def test_a_count_is_a_whole_number_and_no_text(value):
    with pytest.raises(OptionError, match=f"shards={value!r}. Expected: .* at least 2"):
        count_argument("shards", value, least=2)
    assert count_argument("shards", np.int64(2), least=2) == 2
