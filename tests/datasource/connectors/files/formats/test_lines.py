"""With `multiLine` a quote that is never closed swallows no more than a bound, whoever cuts the file where."""

import gzip
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import SchemaError
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.connectors.files.formats.lines import last_row_end, row_ends

SCHEMA = "k int64,v string"
OPTIONS = {"multiLine": "true", "maxRowBytes": "100 B"}
MINUTE_US = 60_000_000


def lines(low: int, high: int) -> str:
    return "".join(f"{number},good {number}\n" for number in range(low, high))


def keys(rows: list[Any]) -> list[int]:
    return [row["k"] for row in rows]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("stray", ['7,5" pipe\n', '7,"never closed\n', '7,a "b" and"\n'])
def test_a_stray_quote_costs_its_line_and_no_other(folder, follow, stray, packed):
    text = "k,v\n" + lines(0, 50) + stray + lines(50, 200) + '8,"two\nlines"\n' + lines(200, 300)
    if packed:
        (folder / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / "a.csv").write_text(text)
    feed = follow(SCHEMA, **OPTIONS)
    assert keys(feed.step()) == [*range(200), 8, *range(200, 300)]
    (bad,) = feed.malformed
    assert (bad["text"], bad["line"]) == (stray.rstrip(), 52)
    assert bad["place"].startswith(str(folder / "a.csv"))
    assert "not closed within 100 bytes" in bad["reason"]


def test_a_feed_that_grows_is_held_no_longer_than_the_bound(folder, follow):
    path = folder / "a.csv"
    path.write_text("k,v\n" + lines(0, 3) + '7,"stray\n' + lines(3, 5))
    feed = follow(SCHEMA, **OPTIONS)
    assert keys(feed.step()) == [0, 1, 2]
    with path.open("a") as file:
        file.write(lines(5, 20))
    assert keys(feed.step()) == list(range(3, 20))
    assert [bad["line"] for bad in feed.malformed] == [5]
    with path.open("a") as file:
        file.write('20,"two\nlines"\n')
    assert keys(feed.step()) == [20]


def test_a_file_that_is_finished_is_held_no_longer_than_a_minute(folder, follow):
    path = folder / "a.csv"
    path.write_text("k,v\n" + lines(0, 3) + '7,"stray\n' + lines(3, 5) + "5,not ended")
    feed = follow(SCHEMA, **OPTIONS)
    now = path.stat().st_mtime_ns // 1000
    assert keys(feed.step(now_us=now)) == [0, 1, 2]
    assert feed.step(now_us=now + MINUTE_US - 1) == []
    assert keys(feed.step(now_us=now + MINUTE_US)) == [3, 4]
    assert [bad["line"] for bad in feed.malformed] == [5]
    with path.open("a") as file:
        file.write("\n")
    assert keys(feed.step(now_us=now + MINUTE_US)) == [5]


def test_what_is_there_now_is_read_to_its_end(folder, connect, following):
    (folder / "a.csv").write_text("k,v\n" + lines(0, 3) + '7,"stray\n' + lines(3, 5))
    connector = connect(SCHEMA, **OPTIONS)
    connector.freeze(0)
    feed = following(connector)
    assert keys(feed.step(limit=Limit())) == list(range(5))
    assert [bad["line"] for bad in feed.malformed] == [5]


def test_column_names_that_never_end_are_an_error(folder, follow):
    (folder / "a.csv").write_text('k,"v\n' + lines(0, 50))
    with pytest.raises(SchemaError, match="maxRowBytes"):
        follow(SCHEMA, **OPTIONS).step()


def slow(text: bytes, most: int, *, final: bool) -> list[int]:
    """The rule, as it reads."""
    found: list[int] = []
    start = 0
    while True:
        ends = [at + 1 for at in range(start, len(text)) if text[at] == 10]
        even = [end for end in ends if text.count(b'"', start, end) % 2 == 0]
        if not ends:
            return found
        if even and (even[0] == ends[0] or even[0] - start <= most):
            start = even[0]
        elif even or final or len(text) - start > most:
            start = ends[0]
        else:
            return found
        found.append(start)


TEXT = st.lists(st.sampled_from([b"a", b"bb", b'"', b"\n", b"\n", b'"x"\n', b"longer\n"]), max_size=40).map(b"".join)


@given(TEXT, st.integers(1, 30), st.booleans())
def test_rows_end_where_the_rule_says(text, most, final):
    assert row_ends(text, b'"', most, final=final).tolist() == slow(text, most, final=final)


@given(TEXT, st.integers(1, 30), st.integers(0, 200))
def test_rows_do_not_depend_on_how_much_was_there(text, most, cut):
    whole = row_ends(text, b'"', most, final=False).tolist()
    seen = row_ends(text[:cut], b'"', most, final=False).tolist()
    assert whole[: len(seen)] == seen
    low = seen[-1] if seen else 0
    assert seen + [low + end for end in row_ends(text[low:], b'"', most, final=False).tolist()] == whole
    assert last_row_end(io.BytesIO(text), 0, len(text), b'"', most) == (whole[-1] if whole else 0)


@pytest.mark.parametrize("multi_line", ["true", "false"])
def test_a_file_of_one_endless_line_is_refused_at_its_start(folder, follow, multi_line):
    (folder / "a.csv").write_bytes(b"a," * (1 << 20))
    with pytest.raises(SchemaError, match="do not end within 1048576 bytes"):
        follow(SCHEMA, multiLine=multi_line).step()
