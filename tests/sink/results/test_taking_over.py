"""Tables of another checkpoint's queries: refused, unless they are to be taken over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from kit.result_tables import COLUMNS, Hosted

from upstream.conf.errors import TableError
from upstream.sink.results.deletion import refuse_foreign


@pytest.mark.parametrize("columns", [COLUMNS, pa.schema([("k", pa.int64()), ("w", pa.float64())])])
def test_a_job_takes_over_and_the_other_one_notices(hosted: Hosted, tmp_path: Path, columns: pa.Schema) -> None:
    old, new = hosted, Hosted(tmp_path, host="new")
    old.batch(0, [old.table("a", 5)], {"a": [(1, "x"), (2, "y")]})
    with pytest.raises(TableError, match="a query of another checkpoint") as refused:
        new.batch(0, [new.table("a", 3, schema=columns)], {"a": [(2, 2)]})
    assert "overwrite=True" in refused.value.hint
    mine = new.table("a", 3, schema=columns, overwrite=True)
    row = (2, "z" if columns is COLUMNS else 0.5)
    new.batch(0, [mine], {"a": [row]})
    assert new.rows(mine) == [row]
    new.batch(1, [mine], {"a": [(3, row[1])]})
    assert new.rows(mine) == [row, (3, row[1])]
    old.restart()
    with pytest.raises(TableError, match="this job has not made it, but a query of another checkpoint"):
        old.batch(1, [old.table("a", 5)], {"a": [(7, "w")]})
    with pytest.raises(TableError, match="is not a table that the query 'a' of this job has written"):
        refuse_foreign(mine.location, "a", "host")
    back = old.table("a", 5, overwrite=True)
    old.batch(1, [back], {"a": [(7, "w")]})
    assert old.rows(back) == [(7, "w")]
