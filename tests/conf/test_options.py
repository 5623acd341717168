"""Options: every problem in one error, the nearest name, types."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.conf.options import boolean, columns, duration_us, one_of, option, parse_options, positive_int
from upstream.conf.units import format_duration_us, parse_bytes, parse_duration_us


@dataclasses.dataclass(frozen=True)
class Group:
    key: tuple[str, ...] = option("key", columns(), (), "Key.")
    rows: int | None = option("maxRowsPerTrigger", positive_int(), None, "Rows.")
    delay_us: int = option("progressDelay", duration_us(), 5, "Delay.")
    mode: str = option("mode", one_of("lazy", "eager"), "lazy", "Mode.")
    on: bool = option("on", boolean(), False, "On.")


def test_names_are_case_insensitive_and_values_typed():
    (group,) = parse_options({"MAXROWSPERTRIGGER": "7", "progressdelay": "10 minutes", "On": "TRUE"}, [Group])
    assert group == Group(rows=7, delay_us=600_000_000, on=True)


def test_every_problem_is_in_one_error_with_the_nearest_name():
    with pytest.raises(OptionError) as caught:
        parse_options(
            {"maxRowsPerTriger": "7", "progressDelay": "soon", "mode": "eagr", "keys": "a", "speed": "2"},
            [Group],
            elsewhere={"speed": "belongs to connector=replay"},
        )
    message = str(caught.value)
    for part in ("'maxRowsPerTrigger'?", "progressDelay='soon'", "'eager'?", "'key'?", "belongs to connector=replay"):
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
