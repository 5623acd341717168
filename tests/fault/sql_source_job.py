"""A job of SQL over a DataFrame of this program, with a function in Python: ``test_kill_sql_job`` kills it.

Arguments: the folder of the feed, the folder of the tables; ``once`` to read what is there and end. The function's
module is in the working directory.
"""

import sys

import upstream as us

SCHEMA = "bus INT, t TIMESTAMP, route STRING, speed DOUBLE"
TEXT = """
CREATE FUNCTION scored(speed DOUBLE, bus INT) RETURNS DOUBLE AS 'functions:scored';
CREATE MATERIALIZED VIEW newest AS SELECT bus, scored(speed, bus) AS s FROM LATEST(buses) WHERE scored(speed, 1) > 20;
CREATE MATERIALIZED VIEW every AS SELECT route, COUNT(*) AS n, SUM(scored(speed, bus)) AS s FROM buses GROUP BY route;
"""


def main(feed: str, lake: str, mode: str = "") -> None:
    spark = us.session(master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    reader = spark.readStream.schema(SCHEMA).option("header", True).option("maxFilesPerTrigger", 1)
    watermark = us.Watermark.bounded("1 second")
    buses = us.source("buses", reader.csv(feed), key="bus", event_time="t", watermark=watermark)
    job = us.sql(spark, TEXT, to=lake, sources=[buses])
    query = job.start(**({"availableNow": True} if mode == "once" else {"processingTime": "0 seconds"}))
    query.awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
