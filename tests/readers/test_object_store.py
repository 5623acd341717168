"""A table in an object store: the sink, a follower and the metrics, against a server of the S3 protocol."""

import json
import sys
from typing import Any

import numpy as np
import pytest
from kit.programs import run
from kit.races import commit_between
from kit.result_tables import Hosted

from upstream.conf.errors import OptionError, TableError
from upstream.datasource.connectors.files.store import FileAccess
from upstream.datasource.registry import CONNECTORS, parse_source_options
from upstream.delta_format.log import entry_place
from upstream.sink.commit.metrics_table import write_metrics
from upstream.sink.figures.summary import read_summaries
from upstream.sink.spec.options import parse_sink_options
from upstream.storage.folder import TableFolder

from .programs import HERE
from .stored import SECRETS, StoredSink, as_printed


def follow(sink: StoredSink) -> list[dict[str, Any]]:
    """What a first run of connector=latest reads."""
    given = {"connector": "latest", "path": sink.address, "timeFormat": "epoch_us"}
    given |= {f"storage.{name}": value for name, value in sink.storage.items()}
    common, own = parse_source_options(given)
    connector = CONNECTORS["latest"].make(own, common)
    connector.fix_schema(connector.schema())
    step = connector.advance(None, 0, connector.limit(common.limit()))
    chunks = (chunk for part in step.ranges for chunk in connector.read(part, None, lambda *_: None))  # type: ignore[arg-type]
    return [row for chunk in chunks for row in chunk.rows.to_pylist()]


def test_batches_deletions_repeats_metrics_and_followers(stored):
    sink = stored()
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b"), (3, 10, "c")])])
    results = sink.tasks([sink.rows([(1, 20, "A")]), sink.rows([(2, 20, None)], deleted=np.array([True]))])
    assert sink.commit(results, 1) is not None
    assert sink.commit(sink.tasks([sink.rows([(1, 20, "A")])]), 1) is None, "a repeated batch changes nothing"
    summary = sink.batch(2, [sink.rows([(2, 15, "late"), (3, 5, "late")])])
    assert summary is not None
    assert (summary.applied, summary.older) == (0, 2), "the tombstone is remembered in the store"
    assert sink.latest() == {1: (20, "A"), 3: (10, "c")}
    assert sorted(row["k"] for row in follow(sink)) == [1, 3]
    assert [each.batch_id for _, each in read_summaries(sink.address, storage_options=sink.storage)] == [0, 1, 2]
    assert write_metrics(parse_sink_options(sink.given)) == 3
    assert write_metrics(parse_sink_options(sink.given)) == 0
    figures = sink.stored(f"{sink.address}_metrics").to_pyarrow_table()
    assert sorted(figures.column("batch_id").to_pylist()) == [0, 1, 2]
    assert set(figures.column("table").to_pylist()) == {sink.address}


def test_of_two_writers_at_once_one_is_refused(stored):
    one, other = stored("one"), stored("other")
    one.batch(0, [one.rows([(1, 10, "a")])])
    results = one.tasks([one.rows([(1, 20, "one")])])
    other.batch(0, [other.rows([(1, 30, "other")])])
    with pytest.raises(TableError, match="was changed by another writer"):
        one.commit(results, 1)
    assert one.latest() == {1: (30, "other")}


def test_a_version_that_somebody_takes_meanwhile_is_not_overwritten(stored, monkeypatch):
    """Between the check and the commit another one gets in: the store itself refuses to put the log entry."""
    sink, other = stored("one"), stored("other")
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b"), (3, 10, "c"), (4, 10, "d")])])
    results = sink.tasks([sink.rows([(1, 20, "one")])])
    before = sink.stored().version()
    # A commit by others that changes no row, as ALTER or OPTIMIZE of other buckets would be.
    properties = {"someone": "else"}
    commit_between(
        monkeypatch, lambda: other.stored().alter.set_table_properties(properties, raise_if_not_exists=False)
    )
    assert sink.commit(results, 1) is not None
    table = sink.stored()
    assert table.version() == before + 2, "theirs and, on top of it, ours"
    assert table.metadata().configuration["someone"] == "else"
    assert sink.latest()[1] == (20, "one")


@pytest.mark.parametrize("name", ["allow_unsafe_rename", "AWS_S3_ALLOW_UNSAFE_RENAME", "conditional_put"])
def test_options_that_would_let_commits_be_overwritten_are_refused(stored, name):
    value = "disabled" if name == "conditional_put" else "true"
    with pytest.raises(OptionError, match=name.lower()):
        parse_sink_options(stored(**{name: value}).given)


def test_errors_do_not_reveal_secrets(stored, unreliable_store, caplog):
    """The store turns against a query that has begun."""
    sink = stored(endpoint_url=unreliable_store.address, max_retries="0", retry_timeout="5s")
    sink.batch(0, [sink.rows([(1, 10, "a")])])
    writer, task = sink.writer(), [sink.rows([(1, 20, "b")])]
    results, files = sink.tasks(task), FileAccess(sink.storage)
    unreliable_store.spoil("refused")
    fresh = stored(endpoint_url=unreliable_store.address, max_retries="1", retry_timeout="5s").place
    refusal = fresh.puts_refused()
    options = tuple((f"storage.{name}", value) for name, value in sink.storage.items())
    hosted = Hosted(sink.folder).table("t", 1, location=f"{sink.address}-t", options=options)
    attempts = [
        sink.writer,
        lambda: list(follow(sink)),
        lambda: read_summaries(sink.address, storage_options=sink.storage),
        lambda: writer.write(iter(task)),
        lambda: writer.commit(results, 1),
        lambda: fresh.put_new(entry_place(9), b"1"),
        lambda: files.open(f"{sink.address}/x.csv"),
        lambda: files.exists(f"{sink.address}/x.csv"),
        lambda: Hosted(sink.folder).tables.look([hosted]),
    ]
    for number, attempt in enumerate(attempts):
        with pytest.raises(TableError) as caught:
            attempt()
        shown = as_printed(caught.value) + str(refusal) + caplog.text + repr(fresh)
        assert "InvalidAccessKeyId" in shown or "403" in shown or "Forbidden" in shown, shown
        assert "What to do" in shown
        for secret in SECRETS.values():
            assert secret not in shown, f"attempt {number}"


def test_only_secrets_are_masked():
    storage = {"region": "eu-west-1", "endpoint_url": "http://user:word@host:1", "ALLOW_HTTP": "true", **SECRETS}
    folder = TableFolder("s3://lake/t", storage)
    shown = folder.masked(f"true eu-west-1 {storage['endpoint_url']} AKIDOFATEST never%2Fto%2Bbe%3Dseen")
    assert shown == "true eu-west-1 *** *** ***"
    assert "AKIDOFATEST" not in repr(folder)


@pytest.mark.spark
def test_on_spark_and_nothing_reveals_a_secret(stored, unreliable_store, tmp_path):
    sink = stored()
    storage = {f"storage.{name}": value for name, value in sink.storage.items()}
    place = tmp_path / "job"
    place.mkdir()
    unreliable_store.spoil("refused")
    done = run(
        sys.executable, HERE / "stored_job.py", place, sink.address, unreliable_store.address, json.dumps(storage)
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
