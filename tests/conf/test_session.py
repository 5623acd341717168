"""The preset, what wins over it, and what is said of a session that lacks something."""

import errno
import json
import os
import sys
import textwrap

import pytest
from kit.feeds import csv_feed, write_csv
from kit.programs import run, run_python

import upstream
from upstream.conf.errors import EnvironmentMissingError, OptionError
from upstream.conf.session import (
    PROVIDER,
    ROCKSDB,
    check_session,
    check_state_store,
    missing,
    preset,
    session,
    warm_workers,
)

pytestmark = pytest.mark.spark


def test_preset_is_in_force(spark):
    assert missing(spark) == []
    assert spark.sparkContext.uiWebUrl is None, "Spark's pages have no password"
    for name, value in preset().items():
        assert spark.conf.get(name) == value, name
    assert spark.range(8).repartition(3).count() == 8
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"


def test_active_session_is_given_back_with_the_settings_that_can_still_change(spark):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        assert session(**{"spark.sql.shuffle.partitions": 3}) is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_what_is_not_a_spark_setting_is_refused():
    with pytest.raises(OptionError, match=r"'shuffle_partitions' is not a Spark setting"):
        session(shuffle_partitions=3)


def test_missing_names_what_was_changed(spark):
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        (lack,) = missing(spark)
        assert lack.startswith("spark.sql.session.timeZone=UTC: it is Europe/Paris")
        assert check_session(spark) == [lack]
        with pytest.raises(EnvironmentMissingError, match=r"lacks spark\.sql\.session\.timeZone=UTC"):
            check_session(spark, strict=True)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_users_settings_win_over_the_preset_and_the_console_is_quiet(tmp_path):
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "# mine\nspark.sql.shuffle.partitions 7\nspark.sql.session.timeZone=UTC\n"
    )
    script = """
        import json, os, pyspark, socket, sys
        from upstream.conf.errors import EnvironmentMissingError
        from upstream.conf.session import missing, session
        spark = session("mine", master="local[3]", spark_ui=True, **{"spark.sql.extensions": "",
                        "spark.databricks.delta.snapshotPartitions": 5})
        assert spark.range(100).repartition(4).selectExpr("sum(id)").collect()[0][0] == 4950
        names = ["spark.app.name", "spark.master", "spark.sql.shuffle.partitions",
                 "spark.databricks.delta.snapshotPartitions"]
        places = lambda rows: iter([(sys.executable, pyspark.__file__,
                                     str([p for p in sys.path if "spark" in p and p.endswith((".zip", ".jar"))]))])
        worker, = spark.sparkContext.parallelize([0], 1).mapPartitions(places).collect()
        beans = spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        collectors = [bean.getName() for bean in beans]
        host, port = spark.sparkContext.uiWebUrl.removeprefix("http://").split(":")
        with socket.socket() as here, socket.socket() as elsewhere:
            pages = [host, here.connect_ex((host, int(port))), elsewhere.connect_ex(("127.0.0.2", int(port)))]
        pages.append("SPARK_LOCAL_IP" in os.environ)
        print(json.dumps([missing(spark), [spark.conf.get(name) for name in names], worker, pages, collectors]))
        query = spark.readStream.format("rate").load().writeStream.format("noop").start()
        query.processAllAvailable()
        query.stop()
        spark.stop()
        try:
            session(master="spark://127.0.0.2:7077")
        except EnvironmentMissingError as error:
            print(error)
    """
    done = run_python(script, cwd=tmp_path, SPARK_CONF_DIR=str(conf), PYSPARK_PYTHON=None, PYSPARK_DRIVER_PYTHON=None)
    assert done.returncode == 0, done.stderr
    import pyspark

    # Workers are this Python with this pyspark as files, and look through no archive.
    worker = [sys.executable, pyspark.__file__, "[]"]
    printed, refused = done.stdout.splitlines()
    assert "the cluster spark://127.0.0.2:7077 cannot reach this process" in refused
    *reported, pages, collectors = json.loads(printed)
    assert pages == ["127.0.0.1", 0, errno.ECONNREFUSED, False], "Spark's pages are for this machine alone"
    assert reported == [[], ["mine", "local[3,2]", "7", "5"], worker]
    assert "Copy" in collectors, "the preset's collector of a small heap"
    noise = [line for line in done.stderr.splitlines() if "jdk.incubator.vector" not in line]
    assert noise == []


PLAIN = """
    import json, sys
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.read.format("upstream").load(sys.argv[1])
    stream = spark.readStream.format("upstream").load(sys.argv[1])
    query = stream.writeStream.format("memory").queryName("t").trigger(availableNow=True).start()
    query.awaitTermination()
    read = [rows.count(), rows.columns, spark.table("t").count()]

    from upstream.conf.session import missing, session
    from upstream.conf.errors import EnvironmentMissingError
    lacks = missing(spark)
    try:
        session()
    except EnvironmentMissingError as error:
        print(json.dumps([read, lacks, str(error)]))
"""


def test_a_session_of_somebody_else_finds_the_format_and_what_it_lacks_is_named(tmp_path):
    write_csv(tmp_path / "a.csv", "k,ms,v", [("x", 1, 1), ("y", 2, 2), ("x", 3, 3)])
    environment = {"PATH": "/usr/bin:/bin", "PYSPARK_PYTHON": sys.executable, "HOME": str(tmp_path)}
    # The second says how Java compiles, not what Spark is: a session of somebody else's has neither jars nor settings.
    environment |= {name: value for name, value in os.environ.items() if name in {"JAVA_HOME", "SPARK_SUBMIT_OPTS"}}
    for _ in range(5):
        done = run(sys.executable, "-c", textwrap.dedent(PLAIN), tmp_path / "a.csv", cwd=tmp_path, env=environment)
        if "connect back" not in done.stderr:  # Spark waits ten seconds for a worker, which a busy machine exceeds
            break
    assert done.returncode == 0, done.stderr[-2000:]
    (count, columns, streamed), lacks, refused = json.loads(done.stdout.splitlines()[-1])
    assert (count, columns, streamed) == (3, ["k", "ms", "v", "_upstream"], 3)
    names = [lack.split("=")[0].split(":")[0] for lack in lacks]
    assert names[:3] == ["Delta's jars", "spark.sql.extensions", "spark.sql.catalog.spark_catalog"]
    assert "spark.sql.streaming.stateStore.providerClass" in names
    assert "upstream.session()" in refused


def test_the_collector_is_the_one_that_the_user_names_and_another_python_for_workers_is_reported(
    tmp_path,
):
    script = """
        import json
        from upstream.conf.session import missing, session
        spark = session(master="local[1]", **{"spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Dmine=1"})
        beans = spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        collectors = [bean.getName() for bean in beans]
        print(json.dumps([missing(spark), collectors, spark._jvm.java.lang.System.getProperty("mine")]))
    """
    done = run_python(script, cwd=tmp_path, PYSPARK_PYTHON="/usr/bin/env")
    assert done.returncode == 0, done.stderr
    (lack,), collectors, mine = json.loads(done.stdout)
    assert lack.startswith(f"PYSPARK_PYTHON={sys.executable}: workers start /usr/bin/env")
    assert "PS Scavenge" in collectors
    assert mine == "1"


def test_workers_are_warmed_by_a_batch_that_really_runs(spark):
    context = spark.sparkContext
    context.setLocalProperty("spark.jobGroup.id", "before")
    thread = warm_workers(spark)
    thread.join()
    # Jobs of the background thread have no group of this one's: its program is not disturbed.
    assert context.statusTracker().getJobIdsForGroup("before") == []
    assert len(context.statusTracker().getJobIdsForGroup(None)) > 0
    context.setLocalProperty("spark.jobGroup.id", None)  # pyright: ignore[reportArgumentType]


def test_a_session_that_is_gone_is_no_failure():
    class Gone:
        @property
        def read(self) -> None:
            raise ConnectionError("stopped")

    thread = warm_workers(Gone())  # pyright: ignore[reportArgumentType]
    thread.join()


def test_the_default_state_store_is_refused_before_anything_is_written(spark, tmp_path):
    write_csv(tmp_path / "feed" / "0.csv", "key,ms,value", [("a", 1, 1)])
    stream = upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
    spark.conf.unset(PROVIDER)
    try:
        spark.conf.set(PROVIDER, ROCKSDB.replace("RocksDB", "HDFSBacked"))
        with pytest.raises(EnvironmentMissingError, match=r"HDFSBacked\w+, and this step cannot: queue") as refused:
            stream.queue().write(tmp_path / "table", checkpoint=tmp_path / "checkpoint")
        assert refused.value.expected == f"{PROVIDER}={ROCKSDB}"
        assert not (tmp_path / "checkpoint").exists()
        stream.write(tmp_path / "table", checkpoint=tmp_path / "checkpoint")  # without state any will do
    finally:
        spark.conf.set(PROVIDER, ROCKSDB)
    check_state_store(spark, "queue")
