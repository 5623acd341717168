"""A user's files in a table's folder are never taken for the table's own."""

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from upstream.conf.errors import TableError
from upstream.sink.spark_writer import check_sink
from upstream.sink.table.contents import check_free, files_in_log, is_own
from upstream.storage.folder import TableFolder

LEASE = f"_upstream_lease/{1:020d}.json"
PART = "part-01234567-89ab-cdef-0123-456789abcdef.parquet"


@pytest.mark.parametrize("path", ["a.csv", "day=1/a.parquet", "part-0.parquet", "_SUCCESS", "_delta_log/_x", "link"])
def test_a_folder_with_files_is_refused_as_a_table(tmp_path, path):
    folder = TableFolder(str(tmp_path / "table"))
    check_free(folder)
    for own in (LEASE, f"_upstream_bucket=0/{PART}", PART, f"deleted/_upstream_bucket=0/{PART}"):
        assert is_own(own)
        Path(folder.location, own).parent.mkdir(parents=True, exist_ok=True)
        Path(folder.location, own).touch()
    Path(folder.location, "empty").mkdir()
    check_free(folder)
    there = Path(folder.location, path)
    there.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(tmp_path, there) if path == "link" else there.touch()
    with pytest.raises(TableError, match=f"no table at {folder.location}, and the folder has a file already: {path}"):
        check_free(folder)
    if not there.is_symlink():
        with pytest.raises(TableError, match="there is a file at"):
            check_free(TableFolder(str(there)))


def test_neither_a_table_nor_its_outputs_begin_in_a_folder_of_input(make_sink, tmp_path):
    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "input.csv").touch()
    for option in ("path", "metricsLocation", "deadLetters"):
        sink = make_sink(deadLetterRows="late")
        with pytest.raises(TableError, match=r"/feed.*the folder has a file already: input\.csv"):
            check_sink({**sink.given, option: str(tmp_path / "feed")}, sink.schema)


def test_a_log_names_all_files_of_all_versions(sink):
    for batch in range(3):
        sink.batch(batch, [sink.rows([(1, batch, "x")])])
    DeltaTable(str(sink.path)).create_checkpoint()
    Path(sink.path, "_delta_log", "00000000000000000000.json").unlink()
    assert sink.files() == files_in_log(TableFolder(str(sink.path))) and len(sink.files()) == 3
