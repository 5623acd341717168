"""The same table read by Polars, DuckDB and Spark SQL: cells to paste into a notebook."""

from __future__ import annotations

# %% Where the table is
import os
import sys

PATH = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "latest")

# %% Polars: no JVM; what is filtered is never read
import polars as pl

positions = pl.scan_delta(PATH)
print(positions.filter(pl.col("speed") > 10).select("vehicle_id", "timestamp", "speed").sort("speed").tail(5).collect())

# %% DuckDB: SQL over the same files, through Arrow
import duckdb
from deltalake import DeltaTable

latest = DeltaTable(PATH).to_pyarrow_dataset()
print(
    duckdb.sql(
        "SELECT route_id, count(*) AS buses, round(avg(speed), 1) AS speed FROM latest GROUP BY ALL ORDER BY buses "
        "DESC LIMIT 5"
    )
)

# %% What each commit said of itself: rows, staleness, how far the feeds are complete
import upstream as us

commits = us.LatestTable(PATH).commits()
version, summary = commits[-1]
print(f"version {version}: {summary.applied} keys of {summary.updates} updates, complete up to {summary.low_watermark}")

# %% Spark SQL: with time travel
spark = us.session("read the table")
spark.sql(f"SELECT count(*) AS buses, max(timestamp) AS newest FROM delta.`{PATH}`").show()
spark.sql(f"SELECT count(*) AS buses_at_first FROM delta.`{PATH}` VERSION AS OF {commits[0][0]}").show()
spark.stop()
