"""DuckDB with its own Delta extension: a line for each table in, with the place for its rows as Parquet; a line out, empty or what it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import duckdb

home = importlib.util.find_spec("duckdb_extension_delta").submodule_search_locations[0]
connection = duckdb.connect()
connection.load_extension(str(next(Path(home).rglob("delta.duckdb_extension"))))
for line in sys.stdin:
    table, place = line.rstrip("\n").split("\t")
    try:
        connection.execute(f"copy (select * from delta_scan('{table}')) to '{place}' (format parquet)")
        print(flush=True)
    except duckdb.Error as error:
        print(str(error).replace("\n", " "), flush=True)
