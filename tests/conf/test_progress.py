"""The line of work that takes seconds: there in a terminal alone, with what it has come to."""

import io
import re

import pytest
from rich.console import Console

from upstream.conf.progress import progress, tracked


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def shown(console: Console) -> list[str]:
    """The texts that followed one another in the line."""
    assert isinstance(console.file, io.StringIO)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())
    return [line.strip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


def test_a_terminal_shows_the_work_and_how_much_of_it_is_done():
    console = terminal()
    with progress("checking [it]", console) as line:
        assert list(tracked(range(3), "buckets")) == [0, 1, 2]
        assert line.text == "checking [it]"
    assert "checking [it] 2 of 3 buckets 0:00:00" in shown(console)[-1]
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().rstrip().endswith("\x1b[2K"), "the line goes with its work"


def test_work_within_other_work_shares_its_line():
    console = terminal()
    with progress("starting", console) as outer, progress("fetching", console) as inner:
        assert inner is outer
        assert outer.text == "fetching"
    with progress("starting", console) as outer:
        with pytest.raises(ValueError, match="no"), progress("fetching", console):
            raise ValueError("no")
        assert outer.text == "starting"


def test_nothing_is_shown_where_nobody_looks():
    console = Console(file=io.StringIO())
    with progress("checking", console) as line:
        line.show("writing")
        assert list(tracked([1, 2], "buckets")) == [1, 2]
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == ""
    assert list(tracked([3], "buckets")) == [3]
