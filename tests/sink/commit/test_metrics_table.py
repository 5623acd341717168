"""The table of metrics: what it says, and that no row is lost or doubled wherever a process dies."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from upstream.conf.errors import OptionError, TableError
from upstream.conf.units import now_us
from upstream.sink.commit import metrics_table as metrics_module
from upstream.sink.commit.metrics_table import SparkGauges, write_metrics
from upstream.sink.figures.summary import read_summaries
from upstream.sink.spark_writer import check_sink
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.spec.steps import CommitStep
from upstream.sink.table import table as table_module
from upstream.storage.folder import TableFolder

from ..deaths import dying_at


@pytest.fixture
def metered(make_sink, tmp_path):
    return make_sink(metricsLocation=str(tmp_path / "metrics"), target="p99 < 5 s")


def write(sink: Any, batch_id: int, first_us: int | None = None) -> None:
    more = {} if first_us is None else {"first_arrival_us": [first_us]}
    writer = sink.writer()
    results = [writer.write(iter([sink.rows([(batch_id, 10, "a")], seq=batch_id, **more)]))]
    sink.writer().commit(results, batch_id)


def batches(folder: Path) -> list[int]:
    table = DeltaTable(str(folder / "metrics")).to_pyarrow_table()
    return sorted(table.column("batch_id").to_pylist())


def test_a_row_for_each_commit(metered, tmp_path):
    for batch_id in range(3):
        write(metered, batch_id)
    duckdb.register("metrics", DeltaTable(str(tmp_path / "metrics")).to_pyarrow_dataset())
    got = duckdb.sql(
        "select batch_id, epoch_us(committed_at), rows, applied, keys, staleness_p99_s, target, target_met, pending, "
        "conflicts, late "
        "from metrics order by batch_id"
    ).fetchall()
    summaries = [summary for _, summary in read_summaries(str(metered.path))]
    assert got == [
        (each.batch_id, each.committed_at_us, 1, 1, each.batch_id + 1, each.staleness.p99, "p99 < 5.0 s",
         each.staleness.p99 < 5, None, 0, None)
        for each in summaries
    ]  # fmt: skip
    assert set(duckdb.sql('select distinct "table" from metrics').fetchall()) == {(str(metered.path),)}


@pytest.mark.parametrize("dies_at", [CommitStep.PUT_OUT, CommitStep.MEASURED])
def test_a_death_before_or_after_the_append_or_many_of_them_in_a_row(metered, tmp_path, dies_at):
    write(metered, 0)
    with dying_at(dies_at):
        write(metered, 1)
    assert batches(tmp_path) == ([0] if dies_at == CommitStep.PUT_OUT else [0, 1])
    for _ in range(2):  # Spark repeats the batch: the table has it already
        write(metered, 1)
        assert batches(tmp_path) == [0, 1]
    for batch_id in range(2, 40):
        with dying_at(CommitStep.PUT_OUT):
            write(metered, batch_id)
    assert batches(tmp_path) == [0, 1]
    write(metered, 40)
    assert batches(tmp_path) == list(range(41))


def test_few_files_after_many_commits(metered, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_module, "_COMPACT_EVERY", 10)
    for batch_id in range(25):
        write(metered, batch_id)
    assert batches(tmp_path) == list(range(25))
    assert len(DeltaTable(str(tmp_path / "metrics")).file_uris()) <= 11


@pytest.mark.parametrize("other", ["query-1", "query-2"])
def test_somebody_appends_between_the_look_and_the_append(make_sink, tmp_path, monkeypatch, other):
    shared = str(tmp_path / "metrics")
    sinks = {name: make_sink(metricsLocation=shared, query_id=name) for name in ("query-1", other)}
    for name, sink in sinks.items():
        write(sink, 0)
        sink.batch(1, [sink.rows([(1, 11 if name == other else 10, "a")], seq=1)])
    made, raced = metrics_module.metrics_rows, []

    def race(*given: Any) -> Any:
        if not raced:
            raced.append(1)
            table_module._cache.clear()  # as in another process
            write_metrics(parse_sink_options(sinks[other].given))
        return made(*given)

    monkeypatch.setattr(metrics_module, "metrics_rows", race)
    write_metrics(parse_sink_options(sinks["query-1"].given))
    table = pl.read_delta(shared)
    assert sorted(table.select("query_id", "batch_id").rows()) == [(n, b) for n in sorted(sinks) for b in range(2)]


def test_a_place_that_holds_something_else(make_sink, tmp_path):
    write_deltalake(str(tmp_path / "other"), pa.table({"rows": ["x"]}))
    sink = make_sink(metricsLocation=str(tmp_path / "other"))
    with pytest.raises(TableError, match="it is a table of others, without table, query_id"):
        check_sink(sink.given, sink.schema)
    same = make_sink(metricsLocation=str(tmp_path / "table"))
    with pytest.raises(OptionError, match="are both"):
        check_sink(same.given, same.schema)


def test_an_append_that_takes_place_although_it_seems_to_fail(metered, tmp_path, monkeypatch):
    write(metered, 0)
    metered.batch(1, [metered.rows([(1, 10, "a")], seq=1)])
    transact = DeltaTable.create_write_transaction

    def lose_the_answer(*given: Any, **more: Any) -> None:
        transact(*given, **more)
        raise DeltaError("connection lost")

    with monkeypatch.context() as losing:
        losing.setattr(DeltaTable, "create_write_transaction", lose_the_answer)
        assert write_metrics(parse_sink_options(metered.given)) == 1
    assert batches(tmp_path) == [0, 1]


def test_a_query_goes_on_without_figures_warns_once_and_catches_up(metered, tmp_path, caplog):
    write(metered, 0)
    shutil.move(tmp_path / "metrics", tmp_path / "kept")
    (tmp_path / "metrics").write_text("a file, not a folder: as a full or a read-only disk")
    for batch_id in (1, 2, 3):
        write(metered, batch_id)
    (warning,) = caplog.records
    assert "the table of metrics cannot be written" in warning.getMessage()
    assert "No figure is lost" in warning.getMessage()
    assert metered.latest() == dict.fromkeys(range(4), (10, "a"))
    (tmp_path / "metrics").unlink()
    shutil.move(tmp_path / "kept", tmp_path / "metrics")
    write(metered, 4)
    assert batches(tmp_path) == list(range(5))
    assert "It was left out 3 times" in caplog.messages[-1]


def test_a_place_that_comes_to_hold_something_else_stays_as_it_is(metered, tmp_path, caplog):
    write_deltalake(str(tmp_path / "metrics"), pa.table({"rows": ["x"]}))
    write(metered, 0)
    assert "it is a table of others, without table, query_id" in caplog.text
    assert DeltaTable(str(tmp_path / "metrics")).to_pyarrow_table().column_names == ["rows"]
    assert metered.latest() == {0: (10, "a")}


def test_sparks_metrics_system_has_gauges_of_a_table(spark, metered):
    metrics = spark.sparkContext._jsc.sc().env().metricsSystem()

    def shown() -> dict[str, float]:
        sources = metrics.getSourcesByName("AccumulatorSource")
        gauges = [sources.apply(n).metricRegistry().getGauges() for n in range(sources.size())]
        return {name: each[name].getValue() for each in gauges for name in each}

    write(metered, 0)
    gauges = SparkGauges(spark, lambda: {metered.query_id: str(metered.checkpoint)})
    gauges.add(TableFolder(str(metered.path)))
    gauges.look()
    named = f"upstream.{metered.path.name}"
    assert not any(name.startswith(named) for name in shown()), "it counts from now on"
    for batch_id in (1, 2):
        write(metered, batch_id)
        gauges.look()
    found = {name.removeprefix(f"{named}."): value for name, value in shown().items() if name.startswith(named)}
    (_, last) = read_summaries(str(metered.path), 0)[-1]
    assert (found["rows_total"], found["applied_total"], found["keys"]) == (2, 2, 3)
    assert found["staleness_p99_seconds"] == pytest.approx(last.staleness.p99)
    assert found["target_met"] == last.target_met
    assert "pending_keys" not in found, "it has no queue"
    # The next batch hangs.
    planned = now_us() - 90_000_000
    (metered.checkpoint / "offsets").mkdir()
    (metered.checkpoint / "offsets" / "3").write_text(f'v1\n{{"batchTimestampMs":{planned // 1000}}}\n17')
    gauges.look()
    found = {name.removeprefix(f"{named}."): value for name, value in shown().items() if name.startswith(named)}
    assert found["uncommitted_batch_seconds"] >= 90
    assert found["staleness_now_p99_seconds"] >= 90
    # A job of continuous queries gives its summaries, and a table of the same name gets another one.
    for _ in range(2):
        gauges.give({f"/lake/{metered.path.name}": last})
    gauges.look()
    assert shown()[f"{named}_2.rows_total"] == 2 * last.rows
    assert shown()[f"{named}.rows_total"] == 2
