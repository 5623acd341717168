"""The tables of many queries in an object store: committed in several threads, each exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kit.deaths import ProcessDied
from kit.result_tables import Hosted

from upstream.conf.errors import TableError
from upstream.sink.latest_table import LatestTable
from upstream.sink.results.table_commit import TableCommit
from upstream.sink.spec import steps
from upstream.sink.spec.steps import Step

from .stored import SECRETS


def _tables(hosted: Hosted, storage: dict[str, str], query_id: int = 1) -> list[Any]:
    options = tuple((f"storage.{name}", value) for name, value in storage.items())
    place = f"s3://lake/{hosted.folder.name}"
    return [hosted.table(f"t{number}", query_id, location=f"{place}/t{number}", options=options) for number in range(6)]


def _rows(hosted: Hosted, table: Any, storage: dict[str, str]) -> list[tuple[Any, ...]]:
    found = LatestTable(table.location, storage_options=storage).rows().collect()
    return sorted(found.rows())


def test_batches_repeats_and_beginnings(tmp_path: Path, storage: dict[str, str]) -> None:
    hosted = Hosted(tmp_path, threads=4)
    tables = _tables(hosted, storage)
    for batch in range(3):
        rows = {table.name: [(batch, f"{batch}")] for table in tables[1:]}
        assert hosted.batch(batch, tables, rows).keys() == (rows.keys() if batch else {"t0", *rows})
        if batch == 1:
            hosted.restart()
        assert hosted.batch(batch, tables, rows) == {}
    assert _rows(hosted, tables[0], storage) == []
    assert _rows(hosted, tables[5], storage) == [(0, "0"), (1, "1"), (2, "2")]
    again = _tables(hosted, storage, 2)
    hosted.batch(3, again, {"t5": [(9, "new")]})
    assert [_rows(hosted, table, storage) for table in again] == [[]] * 5 + [[(9, "new")]]
    for table in again:
        assert LatestTable(table.location, storage_options=storage).check().healthy
    assert DeltaTable(again[5].location, storage_options=storage).version() == 3


def test_a_death_between_two_commits(tmp_path: Path, storage: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    hosted = Hosted(tmp_path)
    tables = _tables(hosted, storage)
    rows = {table.name: [(1, "x")] for table in tables}
    left = [3]

    def dies(step: Step) -> None:
        left[0] -= step is Step.COMMITTED
        if left[0] == 0:
            raise ProcessDied

    with monkeypatch.context() as patched:
        patched.setattr(steps, "reached", dies)
        patched.setattr(TableCommit, "discard", lambda *_: None)
        with pytest.raises(ProcessDied):
            hosted.batch(0, tables, rows)
    hosted.restart()
    assert hosted.batch(0, tables, rows).keys() == {"t3", "t4", "t5"}
    assert [_rows(hosted, table, storage) for table in tables] == [[(1, "x")]] * 6


def test_another_writer_is_noticed(tmp_path: Path, storage: dict[str, str]) -> None:
    hosted = Hosted(tmp_path)
    table = _tables(hosted, storage)[0]
    hosted.batch(0, [table], {"t0": [(1, "x"), (2, "x")]})
    results = hosted.results([table], {"t0": [(1, "y")]})
    DeltaTable(table.location, storage_options=storage).delete("k = 2")
    with pytest.raises(TableError, match="changed by another writer"):
        hosted.tables.commit([table], results, 1, None)
    hosted.batch(1, [table], {"t0": [(1, "y")]})
    assert _rows(hosted, table, storage) == [(1, "y")]


def test_a_store_that_fails_is_no_reason_against_a_table(tmp_path: Path, refusing_store: str) -> None:
    """Its query would be failed for good."""
    hosted = Hosted(tmp_path)
    storage = {"endpoint_url": refusing_store, "allow_http": "true", "region": "us-east-1", **SECRETS}
    with pytest.raises(TableError) as caught:
        hosted.tables.look(_tables(hosted, storage))
    assert not any(secret in str(caught.value) for secret in SECRETS.values())
