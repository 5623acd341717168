"""The tables of many queries in an object store: committed in several threads, each exactly once."""

from typing import Any

from deltalake import DeltaTable
from kit.result_tables import Hosted

from upstream.sink.latest_table import LatestTable


def _tables(hosted: Hosted, storage: dict[str, str], query_id: int = 1) -> list[Any]:
    options = tuple((f"storage.{name}", value) for name, value in storage.items())
    place = f"s3://lake/{hosted.folder.name}"
    return [hosted.table(f"t{number}", query_id, location=f"{place}/t{number}", options=options) for number in range(6)]


def _rows(hosted: Hosted, table: Any, storage: dict[str, str]) -> list[tuple[Any, ...]]:
    found = LatestTable(table.location, storage_options=storage).scan().collect()
    return sorted(found.rows())


def test_batches_repeats_and_beginnings(tmp_path, storage):
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
