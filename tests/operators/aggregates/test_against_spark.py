"""The same rows through Spark SQL and through the aggregates: equal results, of equal types."""

import math

import numpy as np
import pyarrow as pa
import pytest

from upstream.operators.aggregates import functions as exact
from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.approximate import approx_count_distinct

pytestmark = pytest.mark.spark

ROWS = """
    SELECT id % 7 AS g, id AS seq,
        IF(id % 5 = 0, NULL, CAST(id * 37 % 101 - 50 AS INT)) AS i,
        IF(id % 6 = 0, NULL, CAST((id * 7919 % 10007 - 5000) / 100 AS DECIMAL(10, 2))) AS d,
        CAST((id * 7919 % 10007 - 5000) AS DECIMAL(38, 6)) AS wide,
        CASE WHEN id % 7 = 3 AND id % 40 = 3 THEN double('NaN') WHEN id % 7 = 5 AND id % 40 = 5 THEN double('Infinity')
             WHEN id % 11 = 0 THEN NULL WHEN id % 13 = 0 THEN double('-0.0') ELSE sin(id) END AS f,
        IF(id % 9 = 0, NULL, substr('aZéb😀', CAST(id % 5 AS INT) + 1, 2)) AS s,
        id % 3 = 0 AS b, date_add(DATE'1969-12-01', CAST(id * 31 % 97 AS INT)) AS day,
        timestamp_micros(id * 7919 % 10007 - 5000) AS at, CAST(IF(id % 4 = 0, NULL, CAST(id AS STRING)) AS BINARY) AS x
    FROM range(400)
    WHERE id % 7 <> 6 OR id = 6
"""


def test_results_and_types_are_sparks(spark):
    spark.sql(ROWS).createOrReplaceTempView("rows_to_aggregate")
    rows = spark.table("rows_to_aggregate").toArrow()
    asked, sql = {"count": exact.count()}, {"count": "count(*)"}
    for column in ("i", "d", "wide", "f"):
        for function in (exact.sum_, exact.avg, exact.var_pop, exact.var_samp, exact.stddev_pop, exact.stddev_samp):
            name = function.__name__.rstrip("_")
            asked[f"{name}_{column}"], sql[f"{name}_{column}"] = function(column), f"{name}({column})"
    for column in ("i", "d", "wide", "f", "s", "b", "day", "at", "x"):
        asked |= {
            f"n_{column}": exact.count(column),
            f"min_{column}": exact.min_(column),
            f"max_{column}": exact.max_(column),
        }
        asked |= {
            f"first_{column}": exact.first(column, "seq"),
            f"last_{column}": exact.last(column, "seq", ignore_nulls=True),
        }
        sql |= {f"n_{column}": f"count({column})", f"min_{column}": f"min({column})", f"max_{column}": f"max({column})"}
        sql[f"first_{column}"] = f"min_by({column}, seq)"
        sql[f"last_{column}"] = f"max_by({column}, seq) FILTER (WHERE {column} IS NOT NULL)"
    listed = ", ".join(f"{text} AS {name}" for name, text in sql.items())
    expected = spark.sql(f"SELECT g, {listed} FROM rows_to_aggregate GROUP BY g ORDER BY g").toArrow()

    aggregates = Aggregates.of(asked, rows.schema)
    codes = rows.column("g").to_numpy()
    even = np.arange(len(codes)) % 2 == 0
    halves = [aggregates.lift(rows.filter(pa.array(keep)), codes[keep], 7) for keep in (even, ~even)]
    found = aggregates.lower(aggregates.combine(pa.concat_tables(halves), np.tile(np.arange(7), 2), 7))
    for name in asked:
        assert found.schema.field(name).type == expected.schema.field(name).type, name
        for mine, theirs in zip(found.column(name).to_pylist(), expected.column(name).to_pylist(), strict=True):
            if isinstance(theirs, float):
                equal = math.isclose(mine, theirs, rel_tol=1e-12, abs_tol=1e-12) or (
                    math.isnan(mine) and math.isnan(theirs)
                )
            else:
                equal = mine == theirs
            assert equal, f"{name} is {mine}, and Spark's {theirs}"


@pytest.mark.parametrize("column", ["seq", "i", "s"])
def test_spark_reads_the_sketches_of_distinct_values(spark, column):
    rows = spark.sql(ROWS).select(column).toArrow()
    aggregates = Aggregates.of({"n": approx_count_distinct(column)}, rows.schema)
    state = aggregates.lift(rows, np.zeros(len(rows), dtype=np.int64), 1)
    spark.createDataFrame(state.rename_columns(["sketch"])).createOrReplaceTempView("sketches_of_ours")
    spark.createDataFrame(rows).createOrReplaceTempView("rows_to_sketch")
    both, ours = spark.sql(f"""
        SELECT hll_sketch_estimate(hll_union(sketch, (SELECT hll_sketch_agg({column}) FROM rows_to_sketch))),
            hll_sketch_estimate(sketch)
        FROM sketches_of_ours
    """).first()
    assert both == ours == aggregates.lower(state).column("n")[0].as_py()
