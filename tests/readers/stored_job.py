"""A job as a user writes it: a feed into a table in an object store, and a second table that follows the first. It
prints all that Spark shows.

Arguments: a folder to work in, the table's address, the address of a store that refuses, and the storage options as
JSON.
"""

import json
import sys
import traceback
from pathlib import Path

import upstream

LOG4J = """
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {folder}/jvm.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n%ex
logger.netty.name = io.netty
logger.netty.level = info
"""


def main(place: str, address: str, refusing: str, options: str) -> None:
    folder, storage = Path(place), json.loads(options)
    (folder / "log4j2.properties").write_text(LOG4J.format(folder=folder, level="debug"))
    (folder / "events").mkdir()
    settings = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
        "spark.eventLog.enabled": True,
        "spark.eventLog.compress": False,
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }
    spark = upstream.session(master="local[2]", **settings)

    def run(source: str, table: str, name: str, **more: str) -> None:
        updates = upstream.latest(spark, source, key="k", **more)
        places = {"metricsLocation": f"{table}_metrics", "checkpointLocation": str(folder / name), **storage}
        writer = upstream.write_latest(updates, table, key="k", event_time="t", buckets=2, **places)
        query = writer.queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        query.explain(extended=True)
        print(query.lastProgress, query.status, query.recentProgress)

    feed = folder / "feed"
    feed.mkdir()
    for number, rows in enumerate(
        ("a,2024-01-01 00:00:01,1\nb,2024-01-01 00:00:01,2", "a,2024-01-01 00:00:05,3\nc,2024-01-01 00:00:02,4")
    ):
        (feed / f"{number}.csv").write_text(f"k,t,v\n{rows}\n")
    run(str(feed), address, "first", eventTime="t", maxFilesPerTrigger="1")
    run(address, f"{address}_second", "second", connector="latest", **storage)
    batch = spark.read.format("upstream").options(connector="latest", **storage).load(address)
    batch.explain(extended=True)
    print(batch.count(), "rows")
    try:
        storage |= {"storage.endpoint_url": refusing}
        run(str(feed), f"{address}_third", "third", eventTime="t")
    except Exception:
        traceback.print_exc()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
