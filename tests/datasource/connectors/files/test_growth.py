"""Plain text that appears, grows and rotates: whole lines only, each once, in order of arrival."""

import csv
import dataclasses
import json
import os
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.journal import through_json
from kit.malformed_rows import NoneExpected
from kit.ranges import read_range, read_twice

from upstream.conf.errors import FeedChangedError, OptionError, SchemaError
from upstream.conf.options import parse_options
from upstream.datasource.connectors.contract import Limit, Position
from upstream.datasource.connectors.files import FilesConnector, FilesOptions

KV = "k int64,v string"


def append(path: Path, text: str) -> None:
    with path.open("a", newline="") as file:
        file.write(text)


def test_files_are_taken_by_arrival_then_change_then_natural_order(folder, follow):
    for name, changed in (("p10", 5), ("p2", 5), ("p1", 9), ("1²3", 3), ("٣", 3), ("2", 3)):
        append(folder / f"{name}.csv", f"k,v\n1,{name}\n")
        os.utime(folder / f"{name}.csv", (changed, changed))
    feed = follow(KV)
    assert [row["v"] for row in feed.step()] == ["1²3", "2", "٣", "p2", "p10", "p1"]
    append(folder / "p0.csv", "k,v\n1,p0\n")
    os.utime(folder / "p0.csv", (1, 1))
    assert [row["v"] for row in feed.step()] == ["p0"]
    assert feed.arrivals == [2_000_000] * 6 + [3_000_000]


@pytest.mark.parametrize("rule", ["auto", "terminated", "complete"])
def test_the_last_line_of_a_settled_file(folder, follow, rule):
    append(folder / "a.csv", "k,v\n1,x\n2,y")
    changed = int((folder / "a.csv").stat().st_mtime * 1e6)
    feed = follow(KV, lastLine=rule)
    assert len(feed.step(changed + 60_000_000, Limit(files=9))) == (2 if rule == "complete" else 1)
    feed.connector.freeze(changed + 60_000_000)
    feed.step(changed + 5_000_000, Limit(files=9))
    assert len(feed.rows) == (2 if rule == "complete" else 1)
    feed.step(changed + 60_000_000, Limit(files=9))
    assert len(feed.rows) == (1 if rule == "terminated" else 2)


def test_a_batch_takes_the_last_line_at_once(folder, follow):
    append(folder / "a.csv", "k,v\n1,x\n2,y")
    feed = follow(KV)
    feed.connector.freeze(0)
    assert len(feed.step(0)) == 2


@pytest.mark.parametrize(("rest", "rows"), [("\n3,z\n", 1), ("\r\n3,z\r\n", 1), ("\n", 0), ("yy\n", None)])
def test_a_taken_last_line_may_be_ended_and_not_go_on(folder, follow, rest, rows):
    append(folder / "a.csv", "k,v\n1,x\n2,y")
    feed = follow(KV, lastLine="complete")
    assert len(feed.step()) == 2
    append(folder / "a.csv", rest)
    if rows is None:
        with pytest.raises(FeedChangedError, match="byte 11"):
            feed.step()
    else:
        assert len(feed.step()) == rows


@pytest.mark.parametrize(
    ("options", "limit", "sizes"),
    [
        ({"splitBytes": "8"}, Limit(rows=4), [4, 4, 2]),
        ({}, Limit(bytes=3), [1] * 10),
        ({}, Limit(bytes=8), [2] * 5),
        ({"maxFilesPerTrigger": "1"}, None, [5, 5]),
    ],
)
def test_limits_are_exact_and_take_at_least_a_row(folder, follow, options, limit, sizes):
    for number in (0, 5):
        append(folder / f"{number}.csv", "k,v\n" + "".join(f"{number + n},x\n" for n in range(5)))
    feed = follow(KV, **options)
    found = []
    while rows := feed.step(limit=limit or feed.connector.limit(Limit())):
        found.append(len(rows))
    assert found == sizes
    assert [row["k"] for row in feed.rows] == list(range(10))


def test_a_large_file_is_cut_into_ranges(folder, follow):
    append(folder / "a.csv", "k,v\n" + "".join(f"{n},{'x' * (n % 7)}\n" for n in range(1000)))
    feed = follow(KV, splitBytes="500")
    assert [row["k"] for row in feed.step()] == list(range(1000))
    assert len(feed.last) > 10
    assert all(part.span <= 700 for part in feed.last)


def test_what_waits_keeps_its_arrival(folder, follow, following, connect):
    path = folder / "a.csv"
    append(path, "k,v\n1,x\n2,x\n3,")
    feed = follow(KV)
    feed.step(10, Limit(rows=1))
    append(path, "x\n4,x\n")
    feed.step(20, Limit(rows=1))
    again = following(connect(KV))  # restarted from the position
    again.position = feed.position
    append(path, "5,x\n")
    again.step(30)
    assert [row["k"] for row in feed.rows + again.rows] == [1, 2, 3, 4, 5]
    assert feed.arrivals + again.arrivals == [10, 10, 20, 20, 30]
    assert len(again.last) == 1


def test_feeds_share_a_limit(tmp_path, follow):
    for name, rows in (("big", 100), ("small", 3)):
        (tmp_path / name).mkdir()
        append(tmp_path / name / "a.csv", "k,v\n" + "".join(f"{n},{name}\n" for n in range(rows)))
    paths = [str(tmp_path / "big"), str(tmp_path / "small")]
    feed = follow(KV, path=paths[0], paths=f'["{paths[1]}"]')
    assert feed.connector.feeds(None) == paths
    values = [row["v"] for row in feed.step(limit=Limit(rows=10))]
    assert (values.count("big"), values.count("small")) == (7, 3)
    assert {part.feed for part in feed.last} == set(paths)


def test_a_feed_of_which_a_limit_took_all_does_not_wait(folder, follow):
    append(folder / "a.csv", "k,v\n1,a\n2,b\n")
    (source,) = follow(KV).connector.feeds(None)
    assert follow(KV).connector.advance(None, 10, Limit(rows=2)).waiting == {}
    assert follow(KV).connector.advance(None, 10, Limit(rows=1)).waiting == {source: 10}


def test_a_feed_for_each_file(folder, follow):
    for name in "ab":
        append(folder / f"{name}.csv", f"k,v\n1,{name}\n")
    feed = follow(KV, feeds="file")
    assert feed.connector.feeds(None) == []
    feed.step()
    assert feed.connector.feeds(feed.position) == [str(folder / "a.csv"), str(folder / "b.csv")]
    assert {part.feed for part in feed.last} == {str(folder / "a.csv"), str(folder / "b.csv")}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", 0),
        ("\ufeff", 0),
        ("k,v\n", 0),
        ("\ufeffk,v\r\n1,x\r\n2,y\r\n", 2),
        ("\n\nk,v\n\n1,x\n\n\n2,y\n\n", 2),
        ("k,v\r\n\r\n1,x\r\n\r\n2,y\r\n", 2),
        ("v,k\nx,1\ny,2\n", 2),
        ('k,v\n1,"x"\n2,"y"\n', 2),
    ],
)
def test_shapes_of_files(folder, follow, text, rows):
    append(folder / "a.csv", text)
    feed = follow(KV)
    assert feed.step() == [{"k": 1, "v": "x"}, {"k": 2, "v": "y"}][:rows]
    assert feed.malformed == []


def test_names_that_are_not_read(folder, follow):
    for name in ("_a.csv", ".b.csv", "c.txt", "d.csv"):
        append(folder / name, f"k,v\n1,{name}\n")
    (folder / "sub").mkdir()
    append(folder / "sub" / "e.csv", "k,v\n1,e.csv\n")
    assert [row["v"] for row in follow(KV, pathGlobFilter="*.csv").step()] == ["d.csv"]
    found = follow(KV, pathGlobFilter="*.csv", recursiveFileLookup="true").step()
    assert sorted(row["v"] for row in found) == ["d.csv", "e.csv"]
    assert [row["v"] for row in follow(KV, path=f"{folder}/{{d,x}}*.[ct]sv").step()] == ["d.csv"]
    assert [row["v"] for row in follow(KV, path=f"file://{folder}/**/e.csv").step()] == ["e.csv"]
    with pytest.raises(OptionError, match=r"c\.txt does not say its format"):
        follow(KV).step()


@pytest.mark.parametrize(
    ("text", "message"),
    [("k,w\n1,x\n", "lacks v and has besides w"), ("k\n1\n", "lacks v"), ("k,v,w\n1,x,y\n", "has besides w")],
)
def test_other_columns(folder, follow, text, message):
    append(folder / "a.csv", text)
    with pytest.raises(FeedChangedError, match=rf"a\.csv.*{message}"):
        follow(KV).step()


def test_a_column_named_twice(folder, connect):
    append(folder / "a.csv", "k,v,k\n1,x,2\n")
    with pytest.raises(SchemaError, match=r"a\.csv.*'k' occurs twice"):
        connect().schema()
    with pytest.raises(SchemaError, match="'k' occurs twice"):
        connect(KV).advance(None, 0, Limit())


def test_no_file(folder, connect):
    with pytest.raises(SchemaError, match=r"no file with data.*schema"):
        connect().schema()
    append(folder / "a.csv", "k,v\n")
    with pytest.raises(SchemaError, match=r"no row.*schema"):
        connect().schema()
    absent = connect(KV, path=str(folder / "x.csv"))
    assert absent.advance(None, 0, Limit()).ranges == []
    absent.freeze(0)
    with pytest.raises(OptionError, match="does not exist"):
        absent.advance(None, 0, Limit())


class TestChangedFiles:
    @pytest.fixture
    def feed(self, folder, follow):
        append(folder / "a.csv", "k,v\n1,x\n2,y\n3,z\n")
        return follow(KV)

    def test_gone_before_it_was_consumed(self, folder, feed, connect):
        feed.step(limit=Limit(rows=1))
        (folder / "a.csv").rename(folder / "_a")
        with pytest.raises(FeedChangedError, match=r"a\.csv has disappeared .* 8 bytes"):
            feed.step()
        with pytest.raises(FeedChangedError, match="disappeared"):
            connect(KV).advance(feed.position, 0, Limit())
        (folder / "_a").rename(folder / "a.csv")
        assert [row["k"] for row in feed.step()] == [2, 3]

    def test_touched_and_gone_after_it_was_consumed(self, folder, feed, connect):
        feed.step()
        (taken,) = feed.last
        os.utime(folder / "a.csv", (1, 1))
        assert feed.step() == []
        (folder / "a.csv").unlink()
        assert feed.step() == []
        assert connect(KV).advance(feed.position, 0, Limit()).ranges == []
        with pytest.raises(FeedChangedError, match="disappeared"):
            read_range(feed.connector, taken, feed.malformed)

    def test_gone_with_an_unfinished_line(self, folder, feed):
        append(folder / "a.csv", "4,")
        feed.step()
        (folder / "a.csv").unlink()
        with pytest.raises(FeedChangedError, match="2 bytes"):
            feed.step()

    @pytest.mark.parametrize(
        ("text", "seen", "read"),
        [
            ("k,v\n1,x\n", "shrunk to 8 bytes from 16", "had 16"),
            ("k,v\n1,x\n2,y\n4,z\n", "rewritten", "rewritten"),
            ("k,v\n1,x\n2,y\n3,!\n4,z\n", "rewritten", "rewritten"),
            ("v,k\nx,1\ny,2\nz,3\n9,9\n", "rewritten", "rewritten"),
        ],
    )
    def test_shrunk_or_rewritten(self, folder, feed, connect, text, seen, read):
        feed.step()
        (folder / "a.csv").write_text(text)
        os.utime(folder / "a.csv", (1, 1))
        for connector in (feed.connector, connect(KV)):
            with pytest.raises(FeedChangedError, match=seen):
                connector.advance(feed.position, 0, Limit())
        with pytest.raises(FeedChangedError, match=read):
            read_range(feed.connector, feed.last[0], feed.malformed)

    def test_begun_anew_before_anything_was_taken(self, folder, feed):
        (folder / "b.csv").write_text("k,v\n7,x\n8,x\n")
        feed.step(limit=Limit(rows=1))
        assert feed.rows == [{"k": 1, "v": "x"}]
        (folder / "b.csv").write_text("k,v\n9,x\n")
        assert [row["k"] for row in feed.drain(Limit())] == [2, 3, 9]


def lines(low: int, high: int) -> str:
    return "".join(f"{number},x\n" for number in range(low, high))


def keys(feed: Any) -> list[int]:
    return [row["k"] for row in feed.rows]


@pytest.fixture(params=["app.log*", "app.log"])
def feed(request, folder, follow):
    append(folder / "app.log", "k,v\n" + lines(0, 3))
    made = follow(KV, path=str(folder / request.param), fileFormat="csv")
    made.path = str(folder / request.param)
    return made


def rotate(folder: Path, generations: int = 3) -> None:
    for number in range(generations, 0, -1):
        if (folder / f"app.log.{number}").exists():
            os.replace(folder / f"app.log.{number}", folder / f"app.log.{number + 1}")
    os.replace(folder / "app.log", folder / "app.log.1")


def test_rotation_while_a_query_stands_still(folder, feed, following, connect):
    feed.step()
    append(folder / "app.log", lines(3, 4))
    rotate(folder)
    append(folder / "app.log", "k,v\n" + lines(4, 6))
    again = following(connect(KV, path=feed.path, fileFormat="csv"))
    again.position, again.rows, again.now_us = through_json(feed.position), feed.rows, feed.now_us
    again.drain(Limit())
    assert sorted(keys(again)) == list(range(6))


def test_what_was_written_before_and_after_the_renaming_is_read(folder, feed):
    feed.step(limit=Limit(rows=2))
    with (folder / "app.log").open("a") as writer:
        writer.write(lines(3, 5))
        writer.flush()
        rotate(folder)
        append(folder / "app.log", "k,v\n" + lines(10, 12))
        feed.drain(Limit())
        writer.write(lines(5, 7))  # it has not been told yet
    feed.drain(Limit())
    assert sorted(keys(feed)) == [*range(7), 10, 11]


def test_names_that_rotation_gives_say_their_format(folder, follow):
    append(folder / "app.csv", "k,v\n" + lines(0, 3))
    feed = follow(KV, path=str(folder / "app.csv"))
    feed.step()
    append(folder / "app.csv", lines(3, 5))
    os.replace(folder / "app.csv", folder / "app.csv-20240701")
    append(folder / "app.csv", "k,v\n" + lines(5, 6))
    feed.drain(Limit())
    assert sorted(keys(feed)) == list(range(6))


def test_many_generations(folder, feed):
    expected = 3
    for _ in range(6):
        feed.step()
        append(folder / "app.log", lines(expected, expected + 2))
        rotate(folder)
        append(folder / "app.log", "k,v\n" + lines(expected + 2, expected + 3))
        expected += 3
    feed.drain(Limit())
    assert sorted(keys(feed)) == list(range(expected))
    assert len(json.dumps(feed.position)) < 2500


def test_another_file_with_the_same_rows_is_another_file(folder, follow):
    append(folder / "a.csv", "k,v\n" + lines(0, 3))
    feed = follow(KV)
    feed.step()
    number = (folder / "a.csv").stat().st_ino
    (folder / "a.csv").unlink()
    other = folder / "_other"
    append(other, "k,v\n" + lines(0, 3))
    if other.stat().st_ino == number:  # the file system gives a number that is free to the next file
        other.rename(folder / "_keeps the number busy")
        append(other, "k,v\n" + lines(0, 3))
    other.rename(folder / "b.csv")
    assert len(feed.step()) == 3


def test_a_file_that_was_cut_off_is_an_error(folder, feed):
    feed.step()
    (folder / "app.log.1").write_bytes((folder / "app.log").read_bytes())
    os.truncate(folder / "app.log", 0)
    with pytest.raises(FeedChangedError, match=r"has shrunk.*create"):
        feed.step()


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
HEADS = {"csv": "k,v\n", "json": "", "log": "#separator \\x09\n#fields\tk\tv\n#types\tcount\tstring\n"}


@dataclasses.dataclass
class GrowingFile:
    """A file, and the bytes that are still to be appended to it."""

    path: Path
    rest: bytes

    def grow(self, size: int) -> None:
        with self.path.open("ab") as file:
            file.write(self.rest[:size])
        self.rest = self.rest[size:]

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the finished file, read by other means."""
        lines = self.path.read_bytes().decode().splitlines(keepends=True)
        whole = [text for text in lines if text.endswith("\n") and text.strip() and not text.startswith("#")]
        if self.path.suffix == ".json":
            return [json.loads(text) for text in whole]
        if self.path.suffix == ".log":
            pairs = [text.rstrip("\n").split("\t") for text in whole]
            return [{"k": int(k), "v": "" if v == "(empty)" else v} for k, v in pairs]
        return [{"k": int(row["k"]), "v": row["v"]} for row in csv.DictReader(whole)]


@dataclasses.dataclass
class Query:
    """Reads a folder batch by batch, each range twice; a restart leaves it nothing but its position."""

    folder: Path
    options: dict[str, str]
    position: Position | None = None
    now_us: int = 0

    def __post_init__(self) -> None:
        self.rows: dict[Path, list[dict[str, Any]]] = defaultdict(list)
        self.arrivals_of_file: dict[Path, list[int]] = defaultdict(list)
        self.arrivals_of_feed: dict[str, list[int]] = defaultdict(list)
        self.restart()

    def restart(self) -> None:
        (options,) = parse_options({"path": str(self.folder / "data"), **self.options}, [FilesOptions])
        self.connector = FilesConnector(options, state_folder=str(self.folder / "state"))
        self.connector.fix_schema(SCHEMA)

    def batch(self, limit: Limit) -> int:
        """Read what the next batch has; how many rows it has had."""
        step = self.connector.advance(self.position, self.now_us, limit)
        self.position = through_json(step.position)
        count = 0
        for part in step.ranges:
            path = Path(part.place["path"])
            for row, _, arrival_us in read_twice(self.connector, part, NoneExpected()):
                self.rows[path].append(row)
                self.arrivals_of_file[path].append(arrival_us)
                self.arrivals_of_feed[part.feed].append(arrival_us)
                count += 1
        self.ranges = len(step.ranges)
        return count


# A file gets some more bytes, which may end in the middle of a line or of a letter; a limit stands for a batch.
limits = st.one_of(
    st.just(Limit()), *(st.builds(Limit, **{of: st.integers(1, 9)}) for of in ("rows", "bytes", "files"))
)
grown = st.tuples(st.integers(0, 2), st.integers(1, 60))
events = st.lists(st.one_of(grown, limits, st.just("restart")), max_size=25)
values = st.one_of(st.text(st.sampled_from("ab é,'"), max_size=6), st.just("\n"))
contents = st.tuples(st.sampled_from(sorted(HEADS)), st.lists(values, min_size=1, max_size=40))


def line(form: str, number: int, value: str) -> str:
    if value == "\n":
        return "\n"  # a blank line
    if form == "csv":
        return f'{number},"{value}"\n' if value[:1] in ("'", "") or "," in value else f"{number},{value}\n"
    if form == "log":
        return f"{number}\t{value or '(empty)'}\n"
    return json.dumps({"k": number, "v": value}, ensure_ascii=number % 2 == 0) + "\n"


def growing_files(folder: Path, contents: list[tuple[str, list[str]]]) -> list[GrowingFile]:
    folder.mkdir()
    texts = [(form, HEADS[form] + "".join(line(form, *row) for row in enumerate(values))) for form, values in contents]
    return [GrowingFile(folder / f"{at}.{form}", text.encode()) for at, (form, text) in enumerate(texts)]


@settings(max_examples=150, deadline=None)
@given(
    contents=st.lists(contents, min_size=1, max_size=3),
    events=events,
    split_bytes=st.sampled_from(["7", "40", "1 MB"]),
    feeds=st.sampled_from(["path", "file"]),
)
def test_each_row_is_read_once_and_in_order_however_its_file_grows(contents, events, split_bytes, feeds):
    with tempfile.TemporaryDirectory() as home:
        files = growing_files(Path(home, "data"), contents)
        query = Query(Path(home), {"splitBytes": split_bytes, "feeds": feeds})

        for event in events:
            query.now_us += 10
            if event == "restart":
                query.restart()
            elif isinstance(event, Limit):
                assert query.batch(event) <= (event.rows or float("inf"))
            elif event[0] < len(files):
                files[event[0]].grow(event[1])
        for file in files:
            file.grow(len(file.rest))
        # One complete look: on a slow machine the source looks in the background, and would see the last files a little
        # later.
        query.connector.freeze(query.now_us + 10)
        while query.batch(Limit(rows=5, bytes=100)) or query.ranges:
            pass

        for file in files:
            assert query.rows[file.path] == file.rows()
        for arrivals in (*query.arrivals_of_file.values(), *query.arrivals_of_feed.values()):
            assert arrivals == sorted(arrivals)
