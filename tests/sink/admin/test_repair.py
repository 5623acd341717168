"""Shallow clones of latest tables, whose log names the files of another table."""

import dataclasses
import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest
from kit.sink import Sink

from upstream.conf.errors import TableError
from upstream.sink.admin.check import check_table
from upstream.sink.admin.erase import erase_key
from upstream.sink.admin.repair import repair_table
from upstream.sink.maintenance.runner import maintain_table


def _cloned(sink: Sink, origin: Path) -> dict[Path, bytes]:
    """Make a sink's table the shallow clone of what it was, which moves to `origin`; return the files there."""
    log = sink.log()
    shutil.move(sink.path, origin)
    (sink.path / "_delta_log").mkdir(parents=True)
    adds = [{"add": {**add, "path": f"file:{quote(str(origin / path))}"}} for path, add in log.files.items()]
    actions = [{"commitInfo": {"operation": "CLONE"}}, {"protocol": log.protocol}, {"metaData": log.metadata}, *adds]
    (sink.path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return {path: path.read_bytes() for path in origin.rglob("*") if path.is_file()}


@pytest.fixture
def sink(make_sink):
    made = make_sink()
    made.batch(0, [made.rows([(key, 1, "a") for key in range(20)])])
    return made


def test_a_clone_is_read_and_written_and_the_origin_stays_as_it_is(sink, tmp_path):
    before = _cloned(sink, tmp_path / "the origin")
    assert check_table(str(sink.path)).healthy
    sink = dataclasses.replace(sink, query_id="query-2")
    sink.batch(0, [sink.rows([(1, 2, "b")], seq=100)])
    assert "a clone of" in erase_key(str(sink.path), 2).remains[-1].what
    maintain_table(str(sink.path), compact=True)
    maintain_table(str(sink.path), retention_us=0, versions=1)
    assert sink.latest() == {key: (2, "b") if key == 1 else (1, "a") for key in range(20) if key != 2}
    assert check_table(str(sink.path)).healthy
    assert {path: path.read_bytes() for path in before} == before


def test_files_that_are_gone_from_the_origin_are_not_taken_out_of_the_clone(sink, tmp_path):
    before = _cloned(sink, tmp_path / "origin")
    next(path for path in before if path.suffix == ".parquet").unlink()
    (finding,) = check_table(str(sink.path)).findings
    assert "shallow clone" in str(finding)
    for force in (True, False):
        with pytest.raises(TableError, match=r"folder of another table.*restore the file there"):
            repair_table(str(sink.path), force=force)
    assert sink.version() == 0
