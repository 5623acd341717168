"""DuckDB and Polars: the same question asked once of all the files, as the limit of what a machine can do."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness import given_job, say


def duckdb_latest(data: str, out: str, cores: int) -> None:
    """Run DuckDB, into a Parquet file."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {cores}")
        columns = "{'key': 'BIGINT', 'ms': 'BIGINT', 'value': 'DOUBLE'}"
        connection.execute(f"""
            COPY (SELECT key, max(ms) AS ms, arg_max(value, ms) AS value
                  FROM read_csv('{data}/*.csv', columns = {columns}, header = true) GROUP BY key)
            TO '{out}' (FORMAT parquet)
        """)


def polars_latest(data: str, out: str, cores: int) -> None:
    """Run Polars, into a Parquet file."""
    del cores  # all of them
    import polars as pl

    rows = pl.scan_csv(f"{data}/*.csv", schema={"key": pl.Int64, "ms": pl.Int64, "value": pl.Float64})
    newest = rows.group_by("key").agg(pl.col("ms").max(), pl.col("value").get(pl.col("ms").arg_max()))
    newest.collect(engine="streaming").write_parquet(out)


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other, and say how long each took."""
    latest = {"duckdb": duckdb_latest, "polars": polars_latest}[job["engine"]]
    seconds = []
    for work in job["work"]:
        start = time.perf_counter()
        latest(work["data"], work["out"], job["cores"])
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds}


if __name__ == "__main__":
    say(main(given_job()))
