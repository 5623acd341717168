"""Run examples of docstrings on Spark, in the working directory: a program, since Spark's own processes keep the
directory that they began in.

run_examples.py FILE: a JSON object of names and examples
"""

from __future__ import annotations

import doctest
import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import upstream as us


def main() -> int:
    examples: dict[str, str] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = us.session("examples", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    feed = Path("feed")
    feed.mkdir()
    rows = [f"{key},2024-01-01T00:{minute:02d}:00Z,{key * minute}.5" for minute in range(3) for key in (1, 2)]
    (feed / "0.csv").write_text("\n".join(["vehicle_id,timestamp,speed", *rows]) + "\n")
    pl.DataFrame({"vehicle_id": [1, 2], "model": ["A", "B"]}).write_delta("vehicles")

    def stream() -> us.UpdateStream:
        return us.read(spark, "feed/", key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")

    given = {"us": us, "pl": pl, "pa": pa, "pc": pc, "np": np, "spark": spark, "stream": stream(), "other": stream()}
    failed = 0
    for name, text in examples.items():
        example = doctest.DocTestParser().get_doctest(text, dict(given), name, None, 0)
        failed += doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example).failed
    spark.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
