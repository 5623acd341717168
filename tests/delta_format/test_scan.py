"""Tables as frames of Polars, at the version at which they are opened."""

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from upstream.delta_format.scan import scan_table


def test_rows_are_those_of_the_version(tmp_path):
    place = str(tmp_path / "table")
    write_deltalake(place, pa.table({"id": [1, 2]}))
    write_deltalake(place, pa.table({"id": [3]}), mode="append")
    for version, rows in ((0, [1, 2]), (1, [1, 2, 3])):
        assert sorted(scan_table(DeltaTable(place, version)).collect()["id"].to_list()) == rows
