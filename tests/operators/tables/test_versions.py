import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql.streaming.datasource import ReadAllAvailable

from upstream.conf.errors import CheckpointError
from upstream.operators.tables import versions
from upstream.operators.tables.lookup import Version, latest_version
from upstream.operators.tables.versions import TableVersions, version_of_batch


def write(place):
    write_deltalake(place, pa.table({"id": [1]}), mode="append")


def test_offsets_are_the_versions_looked_up_once_in_a_while(tmp_path, monkeypatch):
    place, clock = str(tmp_path / "table"), [100.0]
    monkeypatch.setattr(versions.time, "monotonic", lambda: clock[0])
    write(place)
    reader = TableVersions({"location": place, "storage.region": "x"}).streamReader(None)
    start, limit = reader.initialOffset(), ReadAllAvailable()
    assert start == {"upstream_table": place, "id": "", "version": -1}
    first = reader.latestOffset(start, limit)
    assert first == {"upstream_table": place, "id": latest_version(place, {}).table, "version": 0}
    write(place)
    clock[0] += 0.9
    assert reader.latestOffset(first, limit) == first
    clock[0] += 0.2
    assert reader.latestOffset(first, limit)["version"] == 1
    assert [list(reader.read(part)) for part in reader.partitions(start, first)] == [[]]
    reader.prepareForTriggerAvailableNow()
    write(place)
    clock[0] += 9
    assert reader.latestOffset(first, limit)["version"] == 1  # of the beginning of the run


def test_a_batch_finds_its_version_among_its_offsets(tmp_path):
    (tmp_path / "offsets").mkdir()
    offsets = [
        {"progress": {}},
        {"upstream_table": "one", "id": "i", "version": 3},
        {"upstream_table": "two", "id": "j", "version": 5},
    ]
    lines = ["v1", "{}", *map(json.dumps, offsets), "-"]
    (tmp_path / "offsets" / "4").write_text("\n".join(lines))
    assert version_of_batch(str(tmp_path), 4, "two") == Version("j", 5)
    assert version_of_batch(str(tmp_path), 4, "one") == Version("i", 3)
    with pytest.raises(CheckpointError, match=r"one, two.*three"):
        version_of_batch(str(tmp_path), 4, "three")
    with pytest.raises(CheckpointError, match=r"batch 5.*asynchronous"):
        version_of_batch(str(tmp_path), 5, "one")
