"""Arguments of public functions are taken as the options of their names are, or refused in words."""

from pathlib import Path

import numpy as np
import pytest

from upstream import latest, write_batch, write_latest
from upstream.conf.errors import OptionError
from upstream.conf.options import (
    bytes_argument,
    count_argument,
    names_argument,
    path_argument,
    text_argument,
    whole_argument,
)
from upstream.sink.admin.layout_change import change_keep, rebucket_table


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
    [("buckets", "two"), ("partitions", 0), ("expectedKeys", "many"), ("key", 5), ("event_time", 5), ("path", None)],
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
    with pytest.raises(OptionError, match="keep 5"):
        change_keep(str(tmp_path), 5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="key=5"):
        latest(Frame(), key=5)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", ["4", 4.0, True, None, -1, 1])
def test_a_count_is_a_whole_number_and_no_text(value):
    with pytest.raises(OptionError, match=f"shards={value!r}. Expected: .* at least 2"):
        count_argument("shards", value, least=2)
    assert count_argument("shards", np.int64(2), least=2) == 2
