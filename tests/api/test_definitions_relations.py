"""Stored relations from Python: each method journals its change, whether a job runs or not."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import upstream as us
from upstream.conf.errors import OptionError
from upstream.hosting.journal import Journal


def test_relations_are_declared_refreshed_and_dropped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    queries = us.queries(checkpoint=tmp_path / "cp", to=tmp_path / "lake")
    write_deltalake("routes", pa.table({"id": ["a"]}))
    queries.table("routes", "routes")
    place = tmp_path / "routes"
    assert queries.tables() == {"routes": f"version 0 of {place}"}
    write_deltalake("routes", pa.table({"id": ["b"]}), mode="append")
    queries.table("routes", place)
    assert queries.tables() == {"routes": f"version 0 of {place}"}
    queries.create("all", "SELECT id FROM routes")
    assert "Relation routes (stored, version 0 of" in queries.explain("all")
    queries.refresh("routes")
    assert queries.tables() == {"routes": f"version 1 of {place}"}
    with pytest.raises(OptionError, match="in use by the query 'all'"):
        queries.drop_table("routes")
    queries.drop("all")
    queries.drop_table("routes")
    assert queries.tables() == {}
    assert Journal(queries.checkpoint).version() == 5
    with pytest.raises(OptionError, match="table="):
        queries.table("routes", 3)  # type: ignore[arg-type]
