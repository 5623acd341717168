"""What each reader makes of each kind of table: docs/readers.md shows these claims, and tests hold them."""

import re
from typing import NamedTuple


class Refused(NamedTuple):
    """The reader says that it cannot, in words that the pattern finds."""

    why: str
    pattern: str


Claim = str | Refused
RIGHT = "right"
SHOWS_DELETED = "**shows deleted rows**"  # the reader does not look at deletion vectors, and gives all rows
MISCOUNTS = "rows right, **`count()` counts deleted rows**"  # which it takes from statistics
EMPTIES = "nulls become empty"  # the reader has no nulls for structs, lists and maps
ROUNDS = "to the millisecond"

FEATURES = {
    "plain": "numbers, text, dates",
    "zoned": "`TIMESTAMP`",
    "local": "`TIMESTAMP_NTZ`",
    "decimals": "decimals",
    "nested": "nested",
    "binary": "binary",
    "dotted": "names with dots",
    "spaced": "names with spaces and `,;{}()=`",
    "vectors": "deletion vectors",
}

READERS = {
    "spark": "Spark SQL",
    "jdbc": "Spark's Thrift server, JDBC",
    "pyhive": "Spark's Thrift server, PyHive",
    "duckdb_arrow": "DuckDB over deltalake's `to_pyarrow_dataset`",
    "duckdb_scan": "DuckDB over deltalake's `scan`",
    "duckdb_delta": "DuckDB's Delta extension",
    "polars": "Polars, `scan_delta`, `read_delta`",
    "query_builder": "deltalake, `QueryBuilder`",
    "scan": "deltalake, `scan`",
    "to_arrow": "deltalake, `to_pyarrow_table`",
    "pandas": "pandas, deltalake's `to_pandas`",
    "pandas_scan": "pandas over deltalake's `scan`",
    "daft": "Daft",
    "datafusion": "DataFusion, `register_table`",
    "clickhouse": "ClickHouse 26.9 (`chdb`), `deltaLakeLocal`",
    "trino": "Trino 476, its client in Python",
    "trino_jdbc": "Trino 476, JDBC",
    "parquet": "Parquet tools, with the file list",
}

_OF_ARROW = Refused("refused", "deletion vectors|deletionVectors|DeletionVectors")

# Whatever is not named here is right.
CLAIMS: dict[tuple[str, str], Claim] = {
    ("duckdb_arrow", "vectors"): _OF_ARROW,
    ("to_arrow", "vectors"): _OF_ARROW,
    ("pandas", "vectors"): _OF_ARROW,
    # It finds no word for what it does not know, and takes the file for a broken one. It reads columns side by side:
    # the struct's error is the second, the others' the first.
    ("daft", "spaced"): Refused(
        "refused", "failed to fill whole buffer|build_struct: arrow has 1 fields, parquet has 2"
    ),
    ("daft", "vectors"): Refused("refused", "deletion vectors are not yet supported"),
    ("datafusion", "vectors"): Refused("refused, or right", "during sequential deletion vector scans"),
    ("clickhouse", "nested"): EMPTIES,
    ("clickhouse", "dotted"): Refused(
        "refused, where a struct's field has the same name", "COLUMN_QUERIED_MORE_THAN_ONCE"
    ),
    ("clickhouse", "vectors"): MISCOUNTS,
    ("trino", "zoned"): ROUNDS,
    ("trino_jdbc", "zoned"): ROUNDS,
    ("parquet", "vectors"): SHOWS_DELETED,
    ("polars", "spaced"): Refused("refused", "column mapping"),
}


def claim_of(reader: str, feature: str) -> Claim:
    """What is to be expected."""
    return CLAIMS.get((reader, feature), RIGHT)


def matrix_as_markdown() -> str:
    """The page's list of readers that are right everywhere, and its table of the others where any of them is not."""
    features = [each for each in FEATURES if any(feature == each for _, feature in CLAIMS)]
    by_reader = {shown: [claim_of(reader, each) for each in features] for reader, shown in READERS.items()}
    right = [shown for shown, claims in by_reader.items() if {*claims} == {RIGHT}]
    *plain, last = (shown for each, shown in FEATURES.items() if each not in features)
    lines = [
        f"Every reader returns {', '.join(plain)}, and {last}.",
        "These return all else too:\n",
        *(f"- {shown}" for shown in right),
        "\n| reader | " + " | ".join(FEATURES[each] for each in features) + " |",
        "|---" * (len(features) + 1) + "|",
    ]
    for shown, claims in by_reader.items():
        if shown not in right:
            lines.append(f"| {shown} | " + " | ".join(map(_cell, claims)) + " |")
    return "\n".join(lines) + "\n"


def matrix_of_page(page: str) -> str:
    """The list and the table that a page has."""
    found = re.search(r"^Every reader returns.*?^\| reader \|.*?\n(?=\n)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, "the page has no table that begins with | reader |"
    return found.group()


def _cell(claim: Claim) -> str:
    return "✓" if claim == RIGHT else claim if isinstance(claim, str) else claim.why
