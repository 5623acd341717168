"""However files grow, and however batches and ranges cut them: all rows, once, in order, the same at every reading."""

import csv
import dataclasses
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.journal import through_json
from kit.malformed_rows import NoneExpected
from kit.ranges import read_twice

from upstream.conf.options import parse_options
from upstream.datasource.connectors.contract import Limit, Position
from upstream.datasource.connectors.files import FilesConnector, FilesOptions

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
        self.connector = FilesConnector(options, SCHEMA, state_folder=str(self.folder / "state"))

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
