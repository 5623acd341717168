"""Steps that run where the rows are read: when they do, and that nobody can tell from the results."""

import sys
import threading
import zipfile
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kit.feeds import write_csv
from kit.queries import run_to_end
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import upstream
from upstream import aggregates
from upstream.core.pushdown.at_source import _MOST_BYTES, with_checkpoint
from upstream.core.pushdown.source_steps import STEPS_OPTION
from upstream.delta_format.append_table import count_dead_letters
from upstream.operators.runtime.steps import map_in_arrow
from upstream.storage.folder import TableFolder

# Spark's workers do not find the tests: their functions go as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = [(f"k{number % 5}", 1000 + number, number) for number in range(40)]
FRAMES = ["slot", "frame", "control"]


@pytest.fixture
def folder(tmp_path):
    write_csv(tmp_path / "feed" / "a.csv", "key,ms,value", ROWS)
    return tmp_path / "feed"


def feed(spark, folder, key="key", **options):
    given = {"key": key, "eventTime": "ms", "timeFormat": "epoch_ms", **options}
    return spark.readStream.format("upstream").options(**given).load(str(folder))


def stream_of(df):
    return upstream.UpdateStream(df, key="key", event_time="ms")


def blocked(df):
    """The same rows, by a step of Spark's own, which nothing can be moved over."""
    return df.where("true")


def plan_of(df):
    return df._jdf.queryExecution().analyzed()


def sources(df):
    """The relations that a query reads, but for the queue's clock."""
    leaves = plan_of(df).collectLeaves()
    found = [leaves.apply(number) for number in range(leaves.size())]
    streams = [each for each in found if each.getClass().getSimpleName() == "StreamingRelationV2"]
    return [each for each in streams if each.sourceName() != "upstream_ticks"]


def columns_read(df):
    (source,) = sources(df)
    return list(source.schema().fieldNames())


def maps_of_spark(df):
    return plan_of(df).toString().count("MapInArrow")


def is_moved(df):
    (source,) = sources(df)
    has_steps = source.extraOptions().containsKey(STEPS_OPTION)
    assert has_steps is (maps_of_spark(df) == 0)
    return has_steps


def collect(df, checkpoint):
    """All rows that a query delivers until it has nothing more, without punctuation and the system column."""
    rows = []
    writer = df.writeStream.foreachBatch(
        lambda batch, _: rows.extend(batch.where("NOT _upstream.punctuation").collect())
    )
    run_to_end(writer.option("checkpointLocation", str(checkpoint)))
    return sorted(tuple(row)[:-1] for row in rows)


def doubled(batch):
    return pa.table({"double": pc.multiply(batch.column("value"), 2)})


def one_more(batch):
    return pa.table({"more": pc.add(batch.column("double"), 1)})


def identity(batches):
    yield from batches


@contextmanager
def setting(spark, name, value):
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def test_a_step_is_moved_to_a_bare_source_and_over_a_choice_of_columns(spark, folder, tmp_path):
    df = feed(spark, folder)
    bare = map_in_arrow(df, identity, df.schema)
    assert is_moved(bare)
    assert bare.schema == df.schema
    # Chosen twice, in another order, and in another case, which Spark takes for the same names.
    chosen = df.select("_upstream", "value", "KEY", "ms").select("value", "KEY", "_upstream")
    step = map_in_arrow(chosen, identity, chosen.schema)
    assert is_moved(step)
    assert step.columns == ["value", "KEY", "_upstream"]
    assert collect(step, tmp_path / "checkpoint") == sorted((value, key) for key, _, value in ROWS)


def test_steps_before_a_queue_or_a_window_leave_the_source_as_frames(spark, folder, tmp_path):
    mapped = stream_of(feed(spark, folder)).map(doubled, "double BIGINT")
    windows = mapped.window("10 ms", shards=2).agg(total=aggregates.sum("double"))
    for last in (stream_of(feed(spark, folder)).queue(), mapped.queue(), windows):
        df = last.dataframe(tmp_path / "checkpoint")
        assert columns_read(df) == FRAMES
        assert maps_of_spark(df) == 1  # from frames to rows, after the shards


def test_moved_steps_run_one_after_the_other(spark, folder, tmp_path):
    df = feed(spark, folder)
    for name, before in (("moved", df), ("not", blocked(df))):
        first = stream_of(before).map(doubled, "double BIGINT")
        # Each a step of its own, since a DataFrame is asked for in between.
        steps = stream_of(first.df.select("double", "key", "ms", "_upstream")).map(one_more, "more BIGINT").df
        assert is_moved(steps) is (name == "moved")
        assert steps.columns == ["key", "ms", "more", "_upstream"]
        assert collect(steps, tmp_path / name) == sorted((key, ms, 2 * value + 1) for key, ms, value in ROWS)


@pytest.mark.parametrize(
    "between",
    [
        blocked,
        lambda df: df.withColumn("value", F.col("value") + 1),
        lambda df: df.withColumn("more", F.lit(1)),
        lambda df: df.withColumnRenamed("value", "other"),
        lambda df: df.select(F.col("value").cast("int"), "_upstream"),
        lambda df: df.select(F.col("_upstream.seq")),
        lambda df: df.select("key").union(df.select("key")),
        lambda df: df.withColumn("at", F.timestamp_millis("ms")).withWatermark("at", "1 second"),
        lambda df: df.dropDuplicates(["key"]),
        lambda df: df.repartition(2),
    ],
)
def test_a_step_stays_where_spark_has_something_to_do_before(spark, folder, between):
    df = between(feed(spark, folder))
    step = map_in_arrow(df, identity, df.schema)
    assert maps_of_spark(step) == 1
    assert not any(each.extraOptions().containsKey(STEPS_OPTION) for each in sources(step))


def test_a_step_stays_after_another_format_and_after_a_source_that_the_user_named(spark, folder):
    df = spark.readStream.format("rate").load()
    assert not is_moved(map_in_arrow(df, identity, df.schema))
    with setting(spark, "spark.sql.streaming.queryEvolution.enableSourceEvolution", "true"):
        reader = spark.readStream.format("upstream").options(key="key", eventTime="ms", timeFormat="epoch_ms")
        df = reader.name("readings").load(str(folder))
        assert not is_moved(map_in_arrow(df, identity, df.schema))


def test_a_long_program_stays(spark, folder, tmp_path):
    model = bytes(_MOST_BYTES)

    def modelled(batch):
        return pa.table({"size": pa.repeat(pa.scalar(len(model), pa.int64()), batch.num_rows)})

    df = stream_of(feed(spark, folder)).map(modelled, "size BIGINT").df
    assert not is_moved(df)
    assert {row[-1] for row in collect(df, tmp_path / "checkpoint")} == {_MOST_BYTES}


def test_what_spark_gives_to_its_own_functions_alone_keeps_the_step_there(spark, folder, tmp_path):
    factor = spark.sparkContext.broadcast(3)
    seen = spark.sparkContext.accumulator(0)

    def times(batch):
        return pa.table({"times": pc.multiply(batch.column("value"), factor.value)})

    def counted(batch):
        seen.add(batch.num_rows)
        return pa.table({"same": batch.column("value")})

    df = stream_of(feed(spark, folder)).map(times, "times BIGINT").df
    assert not is_moved(df)
    assert [row[-1] for row in collect(df, tmp_path / "times")] == [3 * value for _, _, value in sorted(ROWS)]
    df = stream_of(feed(spark, folder)).map(counted, "same BIGINT").df
    assert not is_moved(df)
    collect(df, tmp_path / "counted")
    assert seen.value == len(ROWS)


def test_a_function_that_cannot_be_sent_is_refused_as_spark_refuses_it(spark, folder):
    lock = threading.Lock()

    def locked(batch):
        with lock:
            return doubled(batch)

    with pytest.raises(Exception, match=r"Could not serialize object: .*lock"):
        _ = stream_of(feed(spark, folder)).map(locked, "double BIGINT").df


def test_a_function_may_come_from_an_archive_of_the_job(spark, folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "of_the_job.zip", "w") as archive:
        code = "import pyarrow as pa\ndef same(batch):\n    return pa.table({'same': batch.column('value')})\n"
        archive.writestr("only_in_the_archive.py", code)
    spark.sparkContext.addPyFile(str(tmp_path / "of_the_job.zip"))
    try:
        import only_in_the_archive

        df = stream_of(feed(spark, folder)).map(only_in_the_archive.same, "same BIGINT").df
        assert is_moved(df)
        assert collect(df, tmp_path / "checkpoint") == sorted(ROWS)
    finally:
        spark.sparkContext._python_includes.remove("of_the_job.zip")


def test_a_function_sees_times_in_the_sessions_zone(spark, tmp_path):
    write_csv(tmp_path / "feed" / "a.csv", "key,ms,value", [("a", "2024-07-01T12:00:00Z", 1)])

    def hour(batch):
        whole = pa.repeat(pa.scalar(str(batch.schema.field("ms").type)), batch.num_rows)
        return pa.table({"hour": pc.hour(batch.column("ms")), "type": whole})

    with setting(spark, "spark.sql.session.timeZone", "Europe/Berlin"):
        df = spark.readStream.format("upstream").options(key="key", eventTime="ms").load(str(tmp_path / "feed"))
        moved, not_moved = (stream_of(each).map(hour, "hour BIGINT, type STRING").df for each in (df, blocked(df)))
        assert is_moved(moved)
        assert not is_moved(not_moved)
        found = collect(moved, tmp_path / "moved")
        assert [row[-2:] for row in found] == [(14, "timestamp[us, tz=Europe/Berlin]")]
        assert collect(not_moved, tmp_path / "not") == found


def test_the_schema_may_be_inferred_or_given_either_way(spark, folder):
    reader = spark.readStream.format("upstream").options(key="key", eventTime="ms", timeFormat="epoch_ms")
    inferred = reader.load(str(folder))
    given = reader.schema(upstream.with_system_ddl("key STRING, ms BIGINT, value INT")).load(str(folder))
    by_option = feed(spark, folder, schema="key STRING, ms BIGINT, value DOUBLE")
    for df, dtype in ((inferred, "bigint"), (given, "int"), (by_option, "double")):
        same = stream_of(df).map(lambda batch: pa.table({"same": batch.column("value")}), f"same {dtype}").df
        assert is_moved(same)
        assert dict(df.dtypes)["value"] == dict(same.dtypes)["same"] == dtype


def test_malformed_rows_are_put_aside_before_the_steps(spark, tmp_path):
    write_csv(tmp_path / "feed" / "a.csv", "key,ms,value", [("x", 1, 1), ("x", "notime", 2), ("", 3, 3), ("y", 5, 5)])
    aside = {"onMalformed": "quarantine", "deadLetters": str(tmp_path / "aside")}
    df = feed(spark, tmp_path / "feed", schema="key STRING, ms BIGINT, value BIGINT", **aside)
    mapped = stream_of(df).map(doubled, "double BIGINT").df
    assert is_moved(mapped)
    assert collect(mapped, tmp_path / "checkpoint") == [("x", 1, 2), ("y", 5, 10)]
    assert count_dead_letters(TableFolder(str(tmp_path / "aside"))) == 2


def test_sources_get_the_checkpoint_of_the_query_that_writes_them(spark, tmp_path):
    write_csv(tmp_path / "feed" / "a.csv", "key,ms,value", [("x", 1, 1), ("x", "notime", 2), ("y", 5, 5)])
    df = feed(spark, tmp_path / "feed", schema="key STRING, ms BIGINT, value BIGINT")
    mapped = stream_of(df).map(doubled, "double BIGINT")
    # Columns of the streams themselves, of a source that occurs twice and of one that has a checkpoint of its own.
    stream = mapped.where(mapped.df["double"] > 2).select(mapped.df["double"], (F.col("double") + 1).alias("more"))
    own = feed(spark, tmp_path / "feed", schema="key STRING, ms BIGINT, value BIGINT", checkpointLocation="mine")
    given = stream.dataframe("c")
    others = own.selectExpr("key", "ms", "value AS double", "value AS more", "_upstream")
    both = with_checkpoint(given.union(given).union(others), "d")
    assert [each.extraOptions().get("checkpointLocation") for each in sources(both)] == ["c", "c", "mine"]
    assert with_checkpoint(both, "d") is both
    twice = stream_of(df).df.union(stream_of(df).df)
    assert len({each.hashCode() for each in sources(with_checkpoint(twice, "d"))}) == 1
    query = stream.write(tmp_path / "table", checkpoint=tmp_path / "checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = upstream.LatestTable(tmp_path / "table").scan(["key", "double", "more"]).collect().rows()
    assert rows == [("y", 10, 11)]
    assert count_dead_letters(TableFolder(str(tmp_path / "checkpoint" / "dead_letters"))) == 1


def test_an_error_of_a_users_function_is_the_querys(spark, folder, tmp_path):
    def refuses(batch):
        raise ValueError(f"no model for {batch.num_rows} rows")

    df = stream_of(feed(spark, folder)).map(refuses, "double BIGINT").df
    assert is_moved(df)
    with pytest.raises(StreamingQueryException, match=f"ValueError: no model for {len(ROWS)} rows"):
        collect(df, tmp_path / "refused")
    df = stream_of(feed(spark, folder)).map(doubled, "wrong BIGINT").df
    assert is_moved(df)
    with pytest.raises(StreamingQueryException, match=r"SchemaError: .*double.*wrong"):
        collect(df, tmp_path / "wrong")


def test_a_query_goes_on_where_its_steps_ran_elsewhere(spark, folder, tmp_path):
    """And a stream that goes two ways, as one of them does not pass the queue."""

    def run(df):
        mapped = stream_of(df).map(doubled, "double BIGINT")
        stream = mapped.queue(policy="append", budget=None, shards=2)
        queued = stream.dataframe(tmp_path / "checkpoint")
        found = collect(queued.union(stream_of(df).map(doubled, "double BIGINT").df), tmp_path / "checkpoint")
        return columns_read(queued) == FRAMES, found

    doubles = [(key, ms, 2 * value) for key, ms, value in ROWS]
    assert run(feed(spark, folder)) == (True, sorted(doubles * 2))
    write_csv(folder / "b.csv", "key,ms,value", [("k1", 2000, 50), ("new", 2001, 51)])
    more = [("k1", 2000, 100), ("new", 2001, 102)]
    assert run(blocked(feed(spark, folder))) == (False, sorted(more * 2))
    write_csv(folder / "c.csv", "key,ms,value", [("last", 3000, 52)])
    assert run(feed(spark, folder)) == (True, [("last", 3000, 104)] * 2)
