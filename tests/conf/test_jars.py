"""Delta's jars: fetched once, checked, found again with no network; the two that are kept are enough."""

import shutil
from pathlib import Path

import pytest

from upstream.conf import jars
from upstream.conf.errors import EnvironmentMissingError

# Only this machine's closed port is asked: the same as no network, for Ivy.
NO_NETWORK = """<ivysettings><settings defaultResolver="here"/><resolvers>
<ibiblio name="here" m2compatible="true" root="http://127.0.0.1:9/maven2"/></resolvers></ivysettings>"""


@pytest.fixture
def offline(tmp_path):
    """Settings for an empty Ivy cache that cannot be filled."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(NO_NETWORK)
    return {"spark.jars.ivy": str(tmp_path / "ivy"), "spark.jars.ivySettings": str(settings)}


def test_no_network_on_the_first_run_is_one_sentence(offline):
    with pytest.raises(EnvironmentMissingError, match="could not be fetched") as caught:
        jars.delta_jars(offline)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_fetched_jars_are_found_again_with_no_network(tmp_path, offline):
    online = {"spark.jars.ivy": offline["spark.jars.ivy"]}
    first = jars.delta_jars(online)
    assert {Path(path).name for path in first} == set(jars.JARS)
    folder = tmp_path / "ivy" / "jars"
    assert {path.name for path in folder.iterdir()} == set(jars.JARS), "nothing that Spark has already is fetched"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 10e6
    assert jars.delta_jars(offline) == first


def test_a_half_written_jar_is_not_taken(tmp_path, offline):
    folder = tmp_path / "ivy" / "jars"
    folder.mkdir(parents=True)
    for path in jars.delta_jars({}):
        shutil.copy(path, folder)
    assert len(jars.delta_jars(offline)) == 2
    with open(folder / next(iter(jars.JARS)), "r+b") as file:
        file.truncate(1_000_000)
    with pytest.raises(EnvironmentMissingError):
        jars.delta_jars(offline)


def test_two_jars_are_enough(spark, tmp_path):
    """What a user does with a Delta table, with no jar but the two."""
    loaded = {Path(path).name for path in (spark.conf.get("spark.driver.extraClassPath") or "").split(":")}
    assert loaded == set(jars.JARS)
    path = str(tmp_path / "table")
    table = f"delta.`{path}`"

    spark.range(100).selectExpr("id", "id % 4 AS b", "0 AS v").write.format("delta").partitionBy("b").save(path)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT id + 50 AS id, id % 4 AS b, 7 AS v FROM range(100)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"DELETE FROM {table} WHERE id < 10")
    spark.sql(f"UPDATE {table} SET v = 1 WHERE id = 20")
    assert spark.sql(f"SELECT count(*), sum(v) FROM {table}").collect() == [(140, 701)]

    assert spark.sql(f"OPTIMIZE {table} ZORDER BY (id)").count() == 1
    spark.sql(f"REORG TABLE {table} APPLY (PURGE)")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert spark.sql(f"SELECT count(*), sum(v) FROM {table}").collect() == [(140, 701)]
    assert spark.read.format("delta").option("versionAsOf", 1).load(path).count() == 100
