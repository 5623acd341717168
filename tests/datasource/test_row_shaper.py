"""Rows with a time outside of the years that Spark and Python hold are dead letters, shown as they are written."""

import pyarrow as pa
import pytest
from kit.malformed_rows import Reported

from upstream.conf.options import parse_options
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.datasource.connectors.contract import Chunk, Range
from upstream.datasource.options import SourceOptions
from upstream.datasource.row_shaper import RowShaper
from upstream.datasource.schema import FeedShape

US = pa.timestamp("us", "UTC")


@pytest.mark.parametrize("micros", [-62_135_596_800_000_001, 253_402_300_800_000_000, 2**62, -(2**62)])
@pytest.mark.parametrize("name", ["t", "other", "nested"])
def test_a_time_outside_of_all_years_is_a_dead_letter(micros, name):
    user = [("k", pa.string()), ("t", US), ("other", US), ("nested", pa.list_(pa.struct([("a", US)])))]
    good = {"k": "a", "t": 0, "other": 0, "nested": [{"a": 0}]}
    bad = good | {"k": "b", name: [{"a": micros}] if name == "nested" else micros}
    rows = pa.table([pa.array([row[name] for row in (good, bad)], kind) for name, kind in user], pa.schema(user))
    (options,) = parse_options({"eventTime": "t", "key": "k"}, [SourceOptions])
    shape = FeedShape(rows.schema, pa.schema([*user, (SYSTEM, SYSTEM_TYPE)]), stamped=False)
    reported = Reported()
    part = Range("feed", {"path": "a.csv"}, 2, 5)
    made = RowShaper(shape, options, None).shape(Chunk(rows, 0), part, first_seq=0, malformed=reported)
    assert made.table.column("k").to_pylist() == ["a"]
    (letter,) = reported
    assert repr("t" if name == "t" else name) in letter["reason"]
    assert '"k": "b"' in letter["text"]
