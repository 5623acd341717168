"""A table in an object store: the sink, a follower and the metrics, against a server of the S3 protocol."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pytest
from kit.sink import NOW_US

from upstream.conf.errors import OptionError, TableError
from upstream.conf.process_identity import Process
from upstream.datasource.registry import CONNECTORS, parse_source_options
from upstream.sink.commit.lease import Lease, hold_lease, read_lease, release_lease
from upstream.sink.commit.metrics_table import write_metrics
from upstream.sink.figures.summary import read_summaries
from upstream.sink.maintenance.runner import Upkeep
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.spec.options import parse_sink_options
from upstream.storage.folder import TableFolder

from .programs import HERE
from .stored import SECRETS, StoredSink, as_printed


def follow(sink: StoredSink) -> list[dict[str, Any]]:
    """What a first run of connector=latest reads."""
    given = {"connector": "latest", "path": sink.address, "timeFormat": "epoch_us"}
    given |= {f"storage.{name}": value for name, value in sink.storage.items()}
    common, own = parse_source_options(given)
    connector = CONNECTORS["latest"].make(own, common, None)
    connector.fix_schema(connector.schema())
    step = connector.advance(None, 0, connector.limit(common.limit()))
    chunks = (chunk for part in step.ranges for chunk in connector.read(part, None, lambda *_: None))  # type: ignore[arg-type]
    return [row for chunk in chunks for row in chunk.rows.to_pylist()]


def test_batches_deletions_repeats_metrics_and_followers(stored: Callable[..., StoredSink]) -> None:
    sink = stored()
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b"), (3, 10, "c")])])
    results = sink.tasks([sink.rows([(1, 20, "A")]), sink.rows([(2, 20, None)], deleted=np.array([True]))])
    assert sink.commit(results, 1) is not None
    assert sink.commit(sink.tasks([sink.rows([(1, 20, "A")])]), 1) is None, "a repeated batch changes nothing"
    summary = sink.batch(2, [sink.rows([(2, 15, "late"), (3, 5, "late")])])
    assert summary is not None
    assert (summary.delivered, summary.older) == (0, 2), "the tombstone is remembered in the store"
    assert sink.latest() == {1: (20, "A"), 3: (10, "c")}
    assert sorted(row["k"] for row in follow(sink)) == [1, 3]
    assert [each.batch_id for _, each in read_summaries(sink.address, storage_options=sink.storage)] == [0, 1, 2]
    assert write_metrics(parse_sink_options(sink.given)) == 3
    assert write_metrics(parse_sink_options(sink.given)) == 0
    figures = sink.stored(f"{sink.address}_metrics").to_pyarrow_table()
    assert sorted(figures.column("batch_id").to_pylist()) == [0, 1, 2]
    assert set(figures.column("table").to_pylist()) == {sink.address}


def test_what_a_batch_replaced_or_staged_in_vain_does_not_stay(stored: Callable[..., StoredSink]) -> None:
    sink = stored()
    sink.batch(0, [sink.rows([(1, 10, "a")])])
    before = sink.objects()
    results = sink.tasks([sink.rows([(1, 20, "b")])])
    sink.writer().abort(results, 1)
    assert sink.objects() == before
    repeated = sink.tasks([sink.rows([(1, 20, "b")])])
    assert sink.commit(repeated, 0) is None
    assert sink.objects() == before


def test_of_two_writers_at_once_one_is_refused(stored: Callable[..., StoredSink]) -> None:
    one, other = stored("one"), stored("other")
    one.batch(0, [one.rows([(1, 10, "a")])])
    results = one.tasks([one.rows([(1, 20, "one")])])
    other.batch(0, [other.rows([(1, 30, "other")])])
    with pytest.raises(TableError, match="was changed by another writer"):
        one.commit(results, 1)
    assert one.latest() == {1: (30, "other")}


def test_a_version_that_somebody_takes_meanwhile_is_not_overwritten(
    stored: Callable[..., StoredSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the commit another one gets in: the store itself refuses to put the log entry."""
    sink, other = stored("one"), stored("other")
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b"), (3, 10, "c"), (4, 10, "d")])])
    results = sink.tasks([sink.rows([(1, 20, "one")])])
    real = deltalake.DeltaTable.create_write_transaction
    interfered: list[int] = []

    def meanwhile(self: deltalake.DeltaTable, *arguments: Any, **named: Any) -> None:
        if not interfered:
            interfered.append(self.version())
            # A commit by others that changes no row, as ALTER or OPTIMIZE of other buckets would be.
            other.stored().alter.set_table_properties({"someone": "else"}, raise_if_not_exists=False)
        real(self, *arguments, **named)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", meanwhile)
    assert sink.commit(results, 1) is not None
    assert interfered
    table = sink.stored()
    assert table.version() == interfered[0] + 2, "theirs and, on top of it, ours"
    assert table.metadata().configuration["someone"] == "else"
    assert sink.latest()[1] == (20, "one")


@pytest.mark.parametrize("name", ["allow_unsafe_rename", "AWS_S3_ALLOW_UNSAFE_RENAME", "conditional_put"])
def test_options_that_would_let_commits_be_overwritten_are_refused(
    stored: Callable[..., StoredSink], name: str
) -> None:
    value = "disabled" if name == "conditional_put" else "true"
    with pytest.raises(OptionError, match=name.lower()):
        parse_sink_options(stored(**{name: value}).given)


def test_errors_do_not_reveal_secrets(stored: Callable[..., StoredSink], refusing_store: str) -> None:
    refused = stored(endpoint_url=refusing_store, max_retries="1", retry_timeout="5s")
    working = stored()
    working.batch(0, [working.rows([(1, 10, "a")])])
    writer, task = working.writer(), [working.rows([(1, 20, "b")])]
    results = working.tasks(task)
    broken = refused.given
    attempts: list[Callable[[], Any]] = [
        refused.writer,
        lambda: list(follow(refused)),
        lambda: read_summaries(refused.address, storage_options=refused.storage),
        lambda: _with_storage(writer, broken).write(iter(task)),
        lambda: _with_storage(writer, broken).commit(results, 1),
    ]
    for number, attempt in enumerate(attempts):
        with pytest.raises(TableError) as caught:
            attempt()
        shown = as_printed(caught.value)
        assert "InvalidAccessKeyId" in shown or "403" in shown or "Forbidden" in shown, shown
        assert "What to do" in shown
        for secret in SECRETS.values():
            assert secret not in shown, f"attempt {number}"


def test_maintenance_in_a_store(stored: Callable[..., StoredSink]) -> None:
    """What only versions had that nobody can read any more goes; rows, deletions and what a task is about to commit
    stay.
    """
    sink = stored()
    sink.batch(0, [sink.rows([(key, 10, "a") for key in range(20)])])
    sink.batch(1, [sink.rows([(1, 20, None)], deleted=np.array([True]))])
    for number in (2, 3):
        sink.batch(number, [sink.rows([(key, 10 + number, str(number)) for key in range(2, 20)])])
    staged = sink.tasks([sink.rows([(5, 99, "in time")])])
    before, rows = sink.objects(), sink.latest()
    rules = MaintenanceRules(retention_us=1_000_000, versions=1, budget_s=60.0, every=1)
    later = time.time_ns() // 1000 + 30 * 86_400_000_000
    folder = sink.place
    assert Upkeep(folder, sink.stored(), rules, lambda: later).run(whole=True).checkpoint
    # What comes before a checkpoint may go with the next maintenance.
    done = Upkeep(folder, sink.stored(), rules, lambda: later).run(whole=True)
    assert done.failed is None
    assert done.entries > 0
    assert done.files > 0
    assert done.orphans == 0
    assert sink.objects() < before | {path for path in sink.objects() if path.startswith("_delta_log/")}
    assert sink.latest() == rows
    assert sink.commit(staged, 4) is not None
    assert sink.latest()[5] == (99, "in time")
    summary = sink.batch(5, [sink.rows([(1, 15, "late")])])
    assert summary is not None
    assert summary.older == 1, "the deletion is still remembered"


def test_a_lease_in_a_store(stored: Callable[..., StoredSink]) -> None:
    folder, process = TableFolder(stored().address, stored().storage), Process.of(os.getpid())
    hold_lease(folder, "one", process, 60_000_000, NOW_US)
    with pytest.raises(TableError, match="is being written by another query, one"):
        hold_lease(folder, "other", process, 60_000_000, NOW_US + 1)
    assert release_lease(folder) == Lease("one", process, NOW_US, 60_000_000)
    hold_lease(folder, "other", process, 60_000_000, NOW_US + 2)
    found = read_lease(folder)
    assert found is not None
    assert found.query_id == "other"


def test_only_secrets_are_masked() -> None:
    storage = {"region": "eu-west-1", "endpoint_url": "http://user:word@host:1", "ALLOW_HTTP": "true", **SECRETS}
    folder = TableFolder("s3://lake/t", storage)
    shown = folder.masked(f"true eu-west-1 {storage['endpoint_url']} AKIDOFATEST never%2Fto%2Bbe%3Dseen")
    assert shown == "true eu-west-1 *** *** ***"
    assert "AKIDOFATEST" not in repr(folder)


def _with_storage(writer: Any, given: dict[str, str]) -> Any:
    """The same writer where the store has turned against it meanwhile."""
    target = parse_sink_options(given)
    changed = copy.copy(writer)
    changed._target = target
    changed._merger = copy.copy(writer._merger)
    changed._merger._rows = type(writer._merger._rows)(target, writer._schema)
    changed._commit = copy.copy(writer._commit)
    changed._commit._target = target
    return changed


@pytest.mark.spark
def test_on_spark_and_nothing_reveals_a_secret(
    stored: Callable[..., StoredSink], refusing_store: str, tmp_path: Path
) -> None:
    """A feed into the store, a follower, a store that refuses; then a search through all that was left or printed."""
    sink = stored()
    storage = {f"storage.{name}": value for name, value in sink.storage.items()}
    place = tmp_path / "job"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, HERE / "stored_job.py", place, sink.address, refusing_store, json.dumps(storage)],
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    wanted = [("a", 3), ("b", 2), ("c", 4)]
    for address in (sink.address, f"{sink.address}_second"):
        rows = sink.stored(address).to_pyarrow_table()
        assert sorted(zip(rows.column("k").to_pylist(), rows.column("v").to_pylist(), strict=True)) == wanted
    assert "3 rows" in output
    assert sink.stored(f"{sink.address}_metrics").to_pyarrow_table().num_rows == 2
    assert "InvalidAccessKeyId" in output, "the refusal is told"
    files = [path for path in place.rglob("*") if path.is_file()]
    assert {"jvm.log", "metadata"} <= {path.name for path in files}
    assert any(path.name.startswith("events_") or "local-" in path.name for path in files), "there is a log of events"
    assert any(sink.address.encode() in path.read_bytes() for path in files), "they do tell of the table"
    for secret in SECRETS.values():
        assert secret not in output
        assert [path for path in files if secret.encode() in path.read_bytes()] == []
