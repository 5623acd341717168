"""Tables to write."""

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from kit.result_tables import Hosted
from kit.sink import COLUMNS, Sink

from upstream.sink.merge import engines as folding


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a module's tests with each engine that its `ENGINES` names."""
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", getattr(metafunc.module, "ENGINES", ("rewrite",)), indirect=True)


@pytest.fixture
def engine(request, monkeypatch):
    if request.param == "vectors":
        # Else the few rows of a test would be put together with each batch, and none of them marked as dead.
        monkeypatch.setattr(folding, "_FREE_ROWS", 0)
        monkeypatch.setattr(folding, "_FREE_SHARE", 2)
    return request.param


@pytest.fixture
def make_sink(tmp_path, engine):
    def make(columns: pa.Schema = COLUMNS, *, system: bool = True, query_id: str = "query-1", **options: str) -> Sink:
        chosen = {
            "key": "k",
            "eventTime": "t",
            "buckets": "4",
            "engine": engine,
            "indexLocation": str(tmp_path / "index"),
        }
        chosen |= options
        return Sink(tmp_path, columns, {name: value for name, value in chosen.items() if value}, query_id, system)

    return make


@pytest.fixture
def sink(make_sink):
    return make_sink()


@pytest.fixture
def hosted(tmp_path):
    return Hosted(tmp_path)


@pytest.fixture
def new_sink(make_sink, tmp_path_factory):
    """Makes sinks on tables of their own: an example of Hypothesis does not see those of the others."""

    def make(*given: Any, **options: Any) -> Sink:
        return dataclasses.replace(make_sink(*given, **options), folder=tmp_path_factory.mktemp("table"))

    return make
