"""Jobs with state over the files that have come, by whatever commit of the package is on the path.

``python earlier_job.py`` prints what each has come to: its rows, or the package's words of refusal.
"""

import json
from typing import Any

import polars as pl

import upstream as us
from upstream.conf.errors import inner_error

SQL = """
CREATE SOURCE s FROM 'feed/' WITH (key = 'k', event_time = 't', schema = 'k BIGINT, t TIMESTAMP, v BIGINT');
CREATE MATERIALIZED VIEW newest AS SELECT k, v FROM LATEST(s) WHERE v > 0;
CREATE MATERIALIZED VIEW counts AS SELECT v % 2 AS odd, COUNT(*) AS n FROM s GROUP BY v % 2;
"""


def rows(table: str, *columns: str) -> list[list[Any]]:
    return sorted(map(list, pl.read_delta(table).select(columns).rows()))


def run(spark: Any, part: str) -> list[list[Any]]:
    if part == "sql":
        us.sql(spark, SQL, to="lake", checkpoint="lake_checkpoint").start(availableNow=True).awaitTermination()
        return [*rows("lake/newest", "k", "v"), *rows("lake/counts", "odd", "n")]
    stream = us.read(spark, "feed/", key="k", event_time="t", schema="k BIGINT, t TIMESTAMP, v BIGINT")
    step = (
        stream.queue(policy="in-place", budget=1000)
        if part == "queue"
        else stream.window("10 minutes").agg(n=us.count())
    )
    step.write(part, checkpoint=f"{part}_checkpoint").trigger(availableNow=True).start().awaitTermination()
    return rows(part, "k", "v") if part == "queue" else rows(part, "k", "n", "window_start")


def main() -> None:
    results: dict[str, Any] = {}
    spark = us.session(master="local[2]")
    for part in ("queue", "windows", "sql"):
        try:
            results[part] = run(spark, part)
        except Exception as error:
            refusal = inner_error(f"upstream.conf.errors.{type(error).__name__}: {error}") or inner_error(error)
            if refusal is None:
                raise
            results[part] = str(refusal)
    print(json.dumps(results, default=str))


if __name__ == "__main__":
    main()
