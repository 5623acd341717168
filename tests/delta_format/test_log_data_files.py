"""What delta-rs tells of a table's data files, by the names that the files have."""

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from upstream.delta_format.log import LiveFiles


def test_paths_are_those_of_the_files_whatever_the_partition_is_called(tmp_path):
    rows = pa.table({"part": ["a b", "c%d", "a b"], "x": [1, 2, 3]})
    write_deltalake(str(tmp_path), rows, partition_by=["part"])
    found = LiveFiles.of(DeltaTable(str(tmp_path)))
    sizes = [(tmp_path / path).stat().st_size for path in found.paths]
    assert (found.sizes, sorted(found.rows)) == (sizes, [1, 2])
    assert sorted(found.partition("part")) == ["a b", "c%d"]


def test_a_table_without_partitions_or_files(tmp_path):
    write_deltalake(str(tmp_path), pa.table({"x": pa.array([], pa.int64())}))
    found = LiveFiles.of(DeltaTable(str(tmp_path)))
    assert (found.paths, found.sizes, found.rows) == ([], [], [])
