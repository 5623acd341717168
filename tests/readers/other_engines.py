"""Engines that the tests' own environment does not have. The argument names one; a line for each table in, with the
place for its rows as Parquet; a line out, empty or what the engine says against it."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

Read = Callable[[str, str], None]


def _duckdb() -> Read:
    """DuckDB with its own Delta extension."""
    import duckdb

    home = importlib.util.find_spec("duckdb_extension_delta").submodule_search_locations[0]
    connection = duckdb.connect()
    connection.load_extension(str(next(Path(home).rglob("delta.duckdb_extension"))))

    def read(table: str, place: str) -> None:
        connection.execute(f"copy (select * from delta_scan('{table}')) to '{place}' (format parquet)")

    return read


def _daft() -> Read:
    import daft
    import pyarrow.parquet as pq

    return lambda table, place: pq.write_table(daft.read_deltalake(table).to_arrow(), place)


def _datafusion() -> Read:
    """DataFusion, by the table provider of deltalake."""
    import pyarrow.parquet as pq
    from datafusion import SessionConfig, SessionContext
    from deltalake import DeltaTable

    def read(table: str, place: str) -> None:
        # As many partitions on each machine: it decides whether a table with deletion vectors is refused.
        context = SessionContext(SessionConfig().with_target_partitions(2))
        context.register_table("rows", DeltaTable(table))
        pq.write_table(context.sql("select * from rows").to_arrow_table(), place)

    return read


def _clickhouse(columns: str = "*", settings: str = "") -> Read:
    """ClickHouse, which runs in this process, and reads files below the working folder alone."""
    os.chdir("/")
    import chdb
    import pyarrow.parquet as pq

    def read(table: str, place: str) -> None:
        # Text is bytes there.
        query = (
            f"select {columns} from deltaLakeLocal('{table}') "
            f"settings output_format_arrow_string_as_string = 0{settings}"
        )
        pq.write_table(chdb.query(query, "ArrowTable"), place)

    return read


ENGINES = {
    "duckdb_delta": _duckdb,
    "daft": _daft,
    "datafusion": _datafusion,
    "clickhouse": _clickhouse,
    "clickhouse_count": lambda: _clickhouse("count() as rows"),
    "clickhouse_full_count": lambda: _clickhouse("count() as rows", ", optimize_trivial_count_query = 0"),
}


def main() -> None:
    read = ENGINES[sys.argv[1]]()
    for line in sys.stdin:
        table, place = line.rstrip("\n").split("\t")
        try:
            read(table, place)
            print(flush=True)
        except Exception as error:
            print((str(error) or repr(error)).replace("\n", " "), flush=True)


main()
