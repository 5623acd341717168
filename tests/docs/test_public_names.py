"""Each public name is in docs/reference.md, says what it returns, and has an example that is right."""

import ast
import doctest
import inspect
import re
import shutil
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from kit import modules
from kit.sink import Sink

import upstream as us
from upstream.api.windows import GroupedStream, WindowedStream

from . import docstrings
from .docstrings import NAMES, ON_SPARK, free_names, needs_spark


@pytest.fixture(scope="module")
def public():
    return docstrings.public()


@pytest.fixture(scope="module")
def examples():
    return docstrings.examples()


def test_each_public_name_is_on_the_page(public, monkeypatch):
    named = {entry.name for entry in public} | {alias for entry in public for alias in entry.aliases}
    assert set(us.__all__) - named == {"aggregates", "errors", "testing"}
    assert {f"errors.{name}" for name in us.errors.__all__} <= named
    for owner in (us.UpdateStream, us.LatestTable, us.Queries, us.Watermark, WindowedStream):
        own = {name for name, value in inspect.getmembers(owner, callable) if not name.startswith("_")}
        listed = {name.partition(".")[2] for name in named if name.startswith(owner.__name__ + ".")}
        aliases = {alias for entry in public for alias in entry.aliases if entry.name.startswith(owner.__name__ + ".")}
        assert own - listed - aliases == ({"bound"} if owner is us.UpdateStream else set())
    monkeypatch.setattr(us, "__all__", [*us.__all__, "__version__"])
    with pytest.raises(SystemExit, match="__version__"):
        modules.tool("reference").entries()


def test_each_documents_what_it_returns_and_has_an_example(public):
    called = [entry for entry in public if entry.is_made_by_users]
    assert called
    assert [entry.name for entry in public if not entry.parts[""] and callable(entry.value)] == []
    assert [entry.name for entry in called if "Examples" not in entry.parts] == []
    silent = [
        entry.name
        for entry in called
        if not entry.is_class
        and "Returns" not in entry.parts
        and inspect.signature(entry.value).return_annotation not in (None, "None")
    ]
    assert silent == []


def test_each_argument_is_described(public):
    for entry in public:
        if entry.is_made_by_users:
            taken = {name for name in inspect.signature(entry.value).parameters if name != "self"}
            heads = re.findall(r"^(\S[^:\n]*)", entry.parts.get("Parameters", ""), re.MULTILINE)
            described = {name.strip(" *") for head in heads for name in head.split(",")}
            assert taken == described, entry.name


def callee(node: ast.expr) -> Any:
    """What a dotted name in an example stands for; None for what only running it can show."""
    if isinstance(node, ast.Name):
        return {**NAMES, "stream": us.UpdateStream, "other": us.UpdateStream, "table": us.LatestTable}.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = callee(node.value)
        found = None if owner is None else getattr(owner, node.attr)  # an unknown name fails here
        return None if isinstance(found, property) else found
    if isinstance(node, ast.Call):  # steps of a stream give a stream
        step = callee(node.func)
        made = {
            us.read: us.UpdateStream,
            us.UpdateStream.window: WindowedStream,
            us.UpdateStream.session_window: WindowedStream,
            WindowedStream.agg: us.UpdateStream,
            us.UpdateStream.group_by: GroupedStream,
            GroupedStream.agg: us.UpdateStream,
            GroupedStream.window: WindowedStream,
        }
        plain = getattr(us.UpdateStream, getattr(step, "__name__", ""), None) is step and "Self" in str(
            getattr(step, "__annotations__", {}).get("return")
        )
        return made.get(step, us.UpdateStream if plain else None) if isinstance(step, Callable) else None
    return None


def test_names_and_arguments_in_examples_exist(examples):
    checked = 0
    for name, text in examples.items():
        assert free_names(text) <= {*NAMES, *ON_SPARK, "table"}, name
        for node in ast.walk(docstrings.code_of(text)):
            if isinstance(node, ast.Attribute):
                callee(node)
            if isinstance(node, ast.Call) and inspect.isfunction(called := callee(node.func)):
                parameters = inspect.signature(called).parameters
                loose = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
                unknown = {keyword.arg for keyword in node.keywords if keyword.arg} - set(parameters)
                assert loose or not unknown, f"{name}: {called.__qualname__} has no {unknown}"
                checked += 1
    assert checked > 50


def test_examples_without_spark_run(examples, tmp_path, monkeypatch):
    columns = pa.schema([("vehicle_id", pa.int64()), ("timestamp", pa.int64()), ("speed", pa.float64())])
    sink = Sink(tmp_path, columns, {"key": "vehicle_id", "eventTime": "timestamp", "buckets": "4"})
    sink.batch(0, [sink.rows([(1, 1, 5.0), (2, 1, 15.0), (3, 1, 0.0)])])
    sink.batch(1, [sink.rows([(1, 2, 10.0), (2, 2, 20.0), (3, 0, 9.0)], seq=3)])
    run = 0
    for number, (name, text) in enumerate(examples.items()):
        if needs_spark(name, text):
            continue
        shutil.copytree(sink.path, tmp_path / str(number) / "latest")
        monkeypatch.chdir(tmp_path / str(number))
        given = {**NAMES, "table": us.LatestTable("latest")}
        example = doctest.DocTestParser().get_doctest(text, given, name, None, 0)
        output: list[str] = []
        done = doctest.DocTestRunner().run(example, out=output.append)
        assert not done.failed, "".join(output)
        run += 1
    assert run > 25
