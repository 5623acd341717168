"""What a client of Spark Connect sees of its plans, without a server."""

import json
from typing import Any

import pytest
from kit.connect import connect_environment
from kit.programs import run_python

from upstream.core.pushdown.at_source import checkpoint_options

PROGRAM = """
    import json
    from types import SimpleNamespace
    from pyspark.sql.connect import plan
    from pyspark.sql.connect.functions import col
    from upstream.core.pushdown.at_source import is_client_frame, source_alone, sources_within, with_checkpoint

    def frame(plan):
        return SimpleNamespace(_plan=plan, sparkSession=SimpleNamespace(client=None))

    def read(name="upstream", is_streaming=True, **more):
        return plan.DataSource(name, options={"key": "k"}, is_streaming=is_streaming, **more)

    source = read(paths=["feed"])
    other = read("rate")
    frames = {
        "alone": source,
        "of another format": other,
        "of a batch": read(is_streaming=False),
        "with a schema": read(schema="k BIGINT"),
        "with a name": read(source_name="mine"),
        "of two paths": read(paths=["one", "two"]),
        "filtered": plan.Filter(source, col("k") > 1),
        "in a union": plan.SetOperation(plan.Project(other, [col("k")]), source, "union", is_all=True),
    }
    both = with_checkpoint(frame(frames["in a union"]), "c")
    print(json.dumps({
        "with a checkpoint": sources_within(both, None),
        **{name: [source_alone(frame(each), "upstream"), sources_within(frame(each), "upstream")]
        for name, each in frames.items()}
    }))
    assert with_checkpoint(both, "d") is both
    assert both._plan.plan(None).common.plan_id == frames["in a union"].plan(None).common.plan_id
    assert is_client_frame(frame(source))
    assert not is_client_frame(SimpleNamespace(_jdf=object()))
"""


def test_sources_are_found_with_their_options():
    done = run_python(PROGRAM, **connect_environment())
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    feed = {"key": "k", "path": "feed"}
    assert found["alone"] == [feed, [feed]]
    assert found["of another format"] == [None, []]
    assert found["of a batch"] == [None, [{"key": "k"}]]
    assert found["with a schema"] == [None, [{"key": "k"}]]
    assert found["with a name"] == [None, [{"key": "k"}]]
    assert found["of two paths"][0] is None
    assert found["filtered"] == [None, [feed]]
    assert found["in a union"] == [None, [feed]]
    assert found["with a checkpoint"] == [{"key": "k"}, {**feed, "checkpointLocation": "c"}]


@pytest.mark.parametrize(
    ("options", "storage", "expected"),
    [
        ({}, {}, {"checkpointLocation": "s3a://b/c"}),
        ({}, {"region": "x"}, {"checkpointLocation": "s3a://b/c", "storage.region": "x"}),
        ({"path": "feed"}, {"region": "x"}, {"checkpointLocation": "s3a://b/c", "storage.region": "x"}),
        ({"storage.region": "y"}, {"region": "x"}, {"checkpointLocation": "s3a://b/c"}),
        ({"path": "s3://other/feed"}, {"region": "x"}, {}),
        ({"CHECKPOINTLOCATION": "mine"}, {}, {}),
    ],
)
def test_a_checkpoint_in_a_store_comes_with_what_opens_it(options, storage, expected):
    assert checkpoint_options(options, "s3a://b/c", storage) == expected
