"""However files grow, and however batches and ranges cut them: all rows, once, in order, the same at every reading."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.options import parse_options
from upstream.datasource.connectors.contract import Limit, Range
from upstream.datasource.connectors.files import FilesConnector, FilesOptions

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
HEADS = {"csv": "k,v\n", "json": "", "log": "#separator \\x09\n#fields\tk\tv\n#types\tcount\tstring\n"}

texts = st.text(st.sampled_from("ab é,'"), max_size=6)
cells = st.lists(st.one_of(texts, st.just("\n")), min_size=1, max_size=40)
# What happens next: a file gets some more bytes, or a batch is planned.
events = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(0, 2), st.integers(1, 60)),
        st.tuples(st.just("step"), st.sampled_from(["rows", "bytes", "files", "none"]), st.integers(1, 9)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
    ),
    max_size=25,
)


def line(form: str, number: int, value: str) -> str:
    if value == "\n":
        return "\n"  # a blank line
    if form == "csv":
        return f'{number},"{value}"\n' if value[:1] in ("'", "") or "," in value else f"{number},{value}\n"
    if form == "log":
        return f"{number}\t{value or '(empty)'}\n"
    return json.dumps({"k": number, "v": value}, ensure_ascii=number % 2 == 0) + "\n"


def plainly_read(path: Path) -> list[dict[str, Any]]:
    """The rows of a finished file by other means."""
    lines = path.read_bytes().decode().splitlines(keepends=True)
    whole = [text for text in lines if text.endswith("\n") and text.strip() and not text.startswith("#")]
    if path.suffix == ".json":
        return [json.loads(text) for text in whole]
    if path.suffix == ".log":
        pairs = [text.rstrip("\n").split("\t") for text in whole]
        return [{"k": int(k), "v": "" if v == "(empty)" else v} for k, v in pairs]
    return [{"k": int(row["k"]), "v": row["v"]} for row in csv.DictReader(whole)]


class _None:
    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        raise AssertionError((text, place, line, reason))


def rows_of(connector: FilesConnector, part: Range) -> list[tuple[dict[str, Any], int, int]]:
    out: list[tuple[dict[str, Any], int, int]] = []
    for chunk in connector.read(part, None, _None()):
        count = chunk.rows.num_rows
        index = range(chunk.index, chunk.index + count) if isinstance(chunk.index, int) else list(chunk.index)
        stamps = [part.arrival_us] * count if chunk.arrival_us is None else list(chunk.arrival_us)
        out += zip(chunk.rows.to_pylist(), index, (int(each or 0) for each in stamps), strict=True)
    numbers = [number for _, number, _ in out]
    assert numbers == sorted(set(numbers))
    assert all(0 <= number < part.span for number in numbers)
    return out


@settings(max_examples=150, deadline=None)
@given(
    contents=st.lists(st.tuples(st.sampled_from(sorted(HEADS)), cells), min_size=1, max_size=3),
    script=events,
    split=st.sampled_from(["7", "40", "1 MB"]),
    feeds=st.sampled_from(["path", "file"]),
)
def test_every_row_once(contents: Any, script: Any, split: str, feeds: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, state = Path(name, "data"), Path(name, "state")
        folder.mkdir()
        files: list[list[Any]] = []
        for at, (form, values) in enumerate(contents):
            text = HEADS[form] + "".join(line(form, number, value) for number, value in enumerate(values))
            files.append([folder / f"{at}.{form}", text.encode(), 0])

        def connect() -> FilesConnector:
            (options,) = parse_options({"path": str(folder), "splitBytes": split, "feeds": feeds}, [FilesOptions])
            return FilesConnector(options, SCHEMA, state_folder=str(state))

        connector, position, now = connect(), None, 0
        taken: dict[str, list[tuple[dict[str, Any], int]]] = {str(path): [] for path, _, _ in files}
        orders: list[tuple[str, int]] = []

        def step(limit: Limit) -> int:
            nonlocal position
            advance = connector.advance(position, now, limit)
            position = json.loads(json.dumps(advance.position))
            count = 0
            for part in advance.ranges:
                again = Range.from_json(json.loads(json.dumps(part.to_json())))
                rows = rows_of(connector, again)
                assert rows == rows_of(connect(), again)
                taken[part.place["path"]] += [(row, arrival) for row, _, arrival in rows]
                orders.extend((part.feed, arrival) for _, _, arrival in rows)
                count += len(rows)
            if limit.rows is not None:
                assert count <= limit.rows
            return len(advance.ranges)

        for kind, what, amount in script:
            now += 10
            if kind == "restart":
                connector = connect()
            elif kind == "step":
                step(Limit() if what == "none" else Limit(**{what: amount}))
            elif what < len(files):
                path, data, done = files[what]
                with path.open("ab") as file:
                    file.write(data[done : done + amount])
                files[what][2] = done + amount
        for path, data, done in files:
            with path.open("ab") as file:
                file.write(data[done:])
        now += 10
        # One complete look: on a slow machine the source looks in the background, and would see the last files a little later.
        connector.freeze(now)
        while step(Limit(rows=5, bytes=100)):
            pass
        for path, _, _ in files:
            rows = taken[str(path)]
            assert [row for row, _ in rows] == plainly_read(path)
            arrivals = [arrival for _, arrival in rows]
            assert arrivals == sorted(arrivals)
        for feed in {feed for feed, _ in orders}:
            arrivals = [arrival for each, arrival in orders if each == feed]
            assert arrivals == sorted(arrivals)
