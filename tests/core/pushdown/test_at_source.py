"""What a client of Spark Connect sees of its plans, without a server."""

import json
from typing import Any

from kit.connect import connect_environment
from kit.programs import run_python

PROGRAM = """
    import json
    from types import SimpleNamespace
    from pyspark.sql.connect import plan
    from pyspark.sql.connect.functions import col
    from upstream.core.pushdown.at_source import is_client_frame, source_alone, sources_within

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
    print(json.dumps({
        name: [source_alone(frame(each), "upstream"), sources_within(frame(each), "upstream")]
        for name, each in frames.items()
    }))
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
