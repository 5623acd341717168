"""Lines that cannot be read: all of them found and reported, whatever finds them, however many there are."""

import resource
import unittest.mock
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.malformed_rows import Reported

from upstream.conf.errors import SchemaError
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.connectors.files.formats import lines
from upstream.datasource.connectors.files.formats.debezium import ChangeEventFormat
from upstream.datasource.connectors.files.formats.jsonlines import JsonFormat, JsonParser
from upstream.datasource.connectors.files.formats.lines import Head, LineParser, parse_lines
from upstream.datasource.connectors.files.formats.separated_values import DelimitedFormat, DelimitedParser
from upstream.datasource.planner import Task
from upstream.datasource.task import DeadRows
from upstream.delta_format.append_table import count_dead_letters
from upstream.storage.folder import folder_at

SCHEMA = pa.schema(
    [("i", pa.int32()), ("t", pa.timestamp("us")), ("s", pa.string()), ("b", pa.bool_()), ("f", pa.float64()),
     ("d", pa.date32())]
)  # fmt: skip
CELLS = [
    "", "1", "-7", " 5 ", "+1", "0x1F", "007", "2147483648", "99999999999", "x", "1.5", "1e3", "nan", "-inf", ".", '""',
    '"1"', '"a,b"', 'a"b', '"open', '"x"y', "true", "FALSE", "0", "2024-01-01", "2024-02-31", "2024-01-01 10:00:00",
    "2024-01-01T25:00", "2024-01-01T10:00Z", "2024-01-01T10:00:00.123456", "é", " ", "\x00",
]  # fmt: skip
GOOD = ["1", "2024-01-01 10:00:00", "x", "true", "1.5", "2024-01-01"]
MEMBERS = [
    "1", "-1", "1.5", "1e2", "true", "null", '"x"', '"2024-01-01T10:00:00"', '"2024-02-31"', "[1]", "{}", '{"a":1}',
    "01", "NaN", '"\\u00e9"', "99999999999", '"a\tb"', "",
]  # fmt: skip


def outcome(parser: LineParser, block: bytes) -> tuple[list[Any], list[tuple[str, str]]]:
    """Rows with their numbers, and the malformed lines."""
    reported = Reported()
    pieces, _ = parse_lines(parser, block, 5, reported, lambda byte: (f"{byte:09}", None))
    rows: list[Any] = []
    for table, first in pieces:
        numbers = range(first, first + table.num_rows) if isinstance(first, int) else first.tolist()
        rows += zip(numbers, map(repr, table.to_pylist()), strict=True)
    assert all(row["reason"] for row in reported)
    places = [(row["place"], row["text"]) for row in reported]
    assert places == sorted(places)
    return rows, places


def check(make: Callable[[], LineParser], block: bytes) -> None:
    with unittest.mock.patch.object(lines, "_PIECE", 4):
        found = outcome(make(), block)
    parser = make()
    with unittest.mock.patch.object(type(parser), "sift", LineParser.sift):
        assert found == outcome(parser, block)


def delimited() -> DelimitedParser:
    form = DelimitedFormat(header=False, sep=",", quote='"', multi_line=False, null_value="")
    return form.parser(Head(0, SCHEMA.names), SCHEMA, ["i", "t", "s", "b", "f", "d"])


def objects() -> JsonParser:
    schema = pa.schema(
        [("i", pa.int64()), ("t", pa.timestamp("us")), ("s", pa.string()), ("o", pa.struct([("a", pa.int64())]))]
    )
    return JsonFormat().parser(Head(0), schema, None)


ANY_CELLS = st.lists(st.sampled_from(CELLS), min_size=5, max_size=7)
ONE_ODD_CELL = st.tuples(st.integers(0, 5), st.sampled_from(CELLS)).map(
    lambda odd: [*GOOD[: odd[0]], odd[1], *GOOD[odd[0] + 1 :]]
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(ANY_CELLS, min_size=1, max_size=9) | st.lists(ONE_ODD_CELL, min_size=1, max_size=9),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_what_is_sifted_of_delimited_lines_is_what_trying_each_finds(rows, end, last):
    check(delimited, (end.join(",".join(row) for row in rows) + end * last).encode())


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.dictionaries(st.sampled_from("itso"), st.sampled_from(MEMBERS), max_size=3).map(
                lambda each: "{" + ",".join(f'"{name}":{value}' for name, value in each.items()) + "}"
            ),
            st.sampled_from([*MEMBERS, "{}{}", '{"i":1} {"i":2}', '{"i":1}x', " {} ", "\t", "{", '{"i":1,}']),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_what_is_sifted_of_json_lines_is_what_trying_each_finds(rows):
    check(objects, "\n".join(rows).encode() + b"\n")


def test_bytes_that_are_no_text():
    check(delimited, b"1,2024-01-01,\xff,true,1,2024-01-01\n\xff,2024-01-01,x,true,1,2024-01-01\n" * 5)
    check(objects, b'{"s":"\xff"}\n{"s":"x"}\n' * 5)


KINDS = {
    "a wrong number of fields": ("csv", "%d,2024-01-01 10:00:00,x,y\n"),
    "no number": ("csv", "no%d,2024-01-01 10:00:00,x\n"),
    "no time": ("csv", "%d,then,x\n"),
    "no such day": ("csv", "%d,2024-02-31 10:00:00,x\n"),
    "an open quote": ("csv", '%d,2024-01-01 10:00:00,"x\n'),
    "no JSON": ("jsonl", "%d: {,}\n"),
    "another type": ("jsonl", '{"k":"no%d","t":"2024-01-01T10:00:00","v":"x"}\n'),
    "no time in JSON": ("jsonl", '{"k":%d,"t":"then","v":"x"}\n'),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_malformed_lines(tmp_path, folder, follow, kind, count):
    """Memory stays flat, and every line is accounted for."""
    form, line = KINDS[kind]
    with (folder / f"a.{form}").open("w") as file:
        file.write("k,t,v\n" if form == "csv" else "")
        for low in range(0, count, 10_000):
            file.write("".join(line % number for number in range(low, low + 10_000)))
    feed = follow(pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("v", pa.string())]), splitBytes="1 GB")
    advance = feed.connector.advance(None, 1, feed.connector.limit(Limit()))
    kept = DeadRows(folder_at(str(tmp_path / "q")), Task("a-1", 0, [], {}, 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = sum(chunk.rows.num_rows for part in advance.ranges for chunk in feed.connector.read(part, None, kept))
    assert kept.commit() == count
    assert rows == 0
    assert count_dead_letters(folder_at(str(tmp_path / "q"))) == count
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


BAD_STARTS = [
    b"null", b" \tnull", b"nulll", b"\xef\xbb\xbfnull", b"\xef\xbb\xbf\xef\xbb\xbfnull", b"true", b"1", b'"x"', b"[]",
    b"[null]", b"\x00", b"\xef\xbb\xbf\xef\xbb\xbf", b'{"i":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    b'{"i":1,"x":' + b'[{"x":' * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("make", [JsonFormat, ChangeEventFormat])
@pytest.mark.parametrize("line", BAD_STARTS, ids=lambda line: repr(line[:12]))
def test_no_line_ends_the_process(make, line):
    event = b'{"op":"c","after":{"i":1},"source":{"f":"a"}}' if make is ChangeEventFormat else b'{"i":1}'
    for block in (line, line + b"\n" + event, event + b"\n" + line, event + b"\n" + line + b"\n" + event):
        form = make()
        if event in block:
            schema = form.infer(block, Head(0))
            reported = Reported()
            pieces, count = parse_lines(form.parser(Head(0), schema, None), block, 0, reported, lambda _: ("", None))
            rows = [row for table, _ in pieces for row in table.to_pylist()]
            assert count == len(rows) + len(reported)
            assert len(reported) == (0 if make is ChangeEventFormat and line in (b"null", b" \tnull") else 1)
        else:
            with pytest.raises((SchemaError, pa.ArrowInvalid)):
                form.infer(block, Head(0))


@pytest.mark.parametrize(
    ("form", "good", "long"),
    [
        (JsonFormat(), '{{"i":{}}}', '{"i":"' + "x" * 90 + '"}'),
        (DelimitedFormat(header=False, sep=",", quote='"', multi_line=False, null_value=""), "{}", "x" * 90),
    ],
)
def test_a_line_that_is_too_long_is_reported_by_its_start(monkeypatch, form, good, long):
    monkeypatch.setattr(lines, "LONGEST_LINE", 80)
    monkeypatch.setattr(lines, "_SHOWN", 10)
    parser = form.parser(Head(0, ["i"]), pa.schema([("i", pa.int64())]), None)
    block = "\n".join([good.format(0), long, good.format(2), "?", good.format(4), long]).encode()
    rows, reported = outcome(parser, block)
    assert rows == [(5 + at, repr({"i": at})) for at in (0, 2, 4)]
    assert [text for _, text in reported] == [long[:10] + "…", "?", long[:10] + "…"]
    places = [block.index(long.encode()), block.index(b"?"), block.rindex(long.encode())]
    assert [int(place) for place, _ in reported] == places
