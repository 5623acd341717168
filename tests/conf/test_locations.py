"""One path means one place to all parts, and what cannot be a checkpoint is refused in words."""

import os

import pytest

from upstream.conf.errors import OptionError
from upstream.conf.locations import absolute_location, check_apart, checkpoint_location, relation_of_places
from upstream.core.feedback.checkpoint_layout import queue_folder
from upstream.datasource.connectors.files.store import local_path
from upstream.datasource.registry import parse_source_options
from upstream.sink.spec.options import parse_sink_options

SAME = ["/a/b c", "/a/./b c/", "file:/a/b%20c", "file:///a/b%20c", "FILE:///a/b%20c/", "file://localhost/a/b%20c"]


@pytest.mark.parametrize("path", SAME)
def test_one_place_to_all_parts(path):
    assert absolute_location(path) == local_path(path) == "/a/b c"
    assert parse_sink_options({"path": path, "key": "k"}, started=False).location == "/a/b c"


@pytest.mark.parametrize("path", ["/a/c", "file:/a/c", "file:///a/c", "FILE:/a/c/", " /a/x/../c"])
def test_the_source_the_sink_and_the_operators_mean_one_checkpoint(path):
    given = {"connector": "synthetic", "checkpointLocation": path, "deadLetters": path}
    common, _ = parse_source_options(given)
    target = parse_sink_options({"path": "/t", "key": "k", "checkpointLocation": path})
    assert common.checkpoint_location == common.dead_letters == target.checkpoint == "/a/c"
    assert queue_folder(path) == "/a/c/upstream-queue"


def test_relative_places_are_those_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common, _ = parse_source_options({"connector": "synthetic", "checkpointLocation": "c", "deadLetters": "q"})
    os.chdir("/")  # as in a worker
    assert common.checkpoint.location == str(tmp_path / "c")  # pyright: ignore[reportOptionalMemberAccess]
    assert common.dead_letters == str(tmp_path / "q")


@pytest.mark.parametrize(
    "path", ["dbfs:/c", "dbfs:///c", "hdfs://name/c", "hdfs:/c", "wasbs://a@b/c", "viewfs:///c", "HTTPS://a/c"]
)
def test_a_checkpoint_that_python_cannot_reach_is_refused_at_the_start(path):
    scheme = path.partition(":")[0].lower()
    for refuse in (
        lambda: checkpoint_location(path),
        lambda: queue_folder(path),
        lambda: parse_source_options({"connector": "synthetic", "checkpointLocation": path}),
        lambda: parse_sink_options({"path": "/t", "key": "k", "checkpointLocation": path}),
        lambda: parse_sink_options({"path": "/t", "key": "k", "checkpointLocation": path}, started=False),
    ):
        with pytest.raises(OptionError, match=f"is on {scheme}.*mount the file system"):
            refuse()


@pytest.mark.parametrize("path", ["s3://b/c", "s3a://b/c/", "gs://b/c", "abfss://b@a.dfs.core.windows.net/c"])
def test_stores_are_left_as_they_are(path):
    assert checkpoint_location(path) == path.rstrip("/")


def test_what_spark_would_take_for_another_folder_is_refused():
    with pytest.raises(OptionError, match="'/a b/c'"):
        checkpoint_location("file:///a%20b/c")


@pytest.mark.parametrize("path", ["file://data/feed", "file://elsewhere/x"])
def test_an_address_of_another_machine_is_refused(path):
    host = path[7:].partition("/")[0]
    for refuse in (absolute_location, local_path, checkpoint_location):
        with pytest.raises(OptionError, match=f"write file:///{host}/"):
            refuse(path)


@pytest.mark.parametrize(
    ("one", "other", "met"),
    [
        ("/a/b", "/a/b/", "at"), ("/a/b/c", "/a/b", "inside"), ("/a", "/a/b", "above"), ("/a/b", "/a/bc", ""),
        ("/a/b", "file:/a/x/../b", "at"), ("/", "/a", "above"), ("/a/b", "/a/*.csv", ""), ("/a/b", "/a/b*/c", "above"),
        ("/a", "/a/*.csv", "above"), ("/a/b/c", "/a/*", "inside"), ("/a/b", "/a/{b,c}", "at"),
        ("s3://lake/a/b", "s3a://lake/a/b/", "at"), ("s3a://lake/a/b", "s3://lake/a", "inside"),
        ("s3://lake", "s3://lake/a", "above"), ("s3://lake/a", "gs://lake/a", ""), ("/lake/a", "s3://lake/a", ""),
    ],
)  # fmt: skip
def test_places_meet_or_are_apart(one, other, met):
    assert relation_of_places(one, other) == met


def test_a_folder_of_ours_is_refused_where_another_is(tmp_path):
    os.symlink(tmp_path, tmp_path / "link")
    check_apart([("path", str(tmp_path / "t")), ("late", str(tmp_path / "l"))], [("the source", str(tmp_path / "s"))])
    with pytest.raises(OptionError, match=rf"path, {tmp_path}/link/t \(which is {tmp_path}/t\), is above the source"):
        check_apart([("path", str(tmp_path / "link" / "t"))], [("the source", str(tmp_path / "t" / "in"))])
    for place, checkpoint in (("t", "t/_checkpoint"), ("t", "t"), ("cp/offsets", "cp")):
        with pytest.raises(OptionError, match="the checkpoint"):
            parse_sink_options({"path": f"/lake/{place}", "key": "k", "checkpointLocation": f"/lake/{checkpoint}"})
