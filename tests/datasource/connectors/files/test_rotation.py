"""Log rotation: a file that gets another name is the same file, and each of its rows is read once."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kit.journal import through_json

from upstream.conf.errors import FeedChangedError
from upstream.datasource.connectors.contract import Limit

KV = "k int64,v string"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


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
