"""Folders for rows set aside, apart from what the plan reads and from the checkpoint."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from upstream.conf.errors import OptionError
from upstream.operators.compile import check_aside, letters_location, places_aside, places_read
from upstream.operators.tables.lookup import TableJoinPlan
from upstream.plan.nodes import InputRows, Intake, Reorder, TableJoin

SCHEMA = StructType()


def test_rows_are_set_aside_neither_in_what_is_read_nor_in_the_checkpoint():
    read = InputRows(("k",), None, SCHEMA, frame=object())  # type: ignore[arg-type]
    table = TableJoinPlan("/lake/routes", (), ("k",), ("k",), "left", (), pa.schema([]), pa.schema([]))
    joined = TableJoin(("k",), None, SCHEMA, inputs=(read,), specification=table)
    assert places_read(joined) == (("the joined table", "/lake/routes"),)
    for late, refused in (
        ("/lake/routes/late", "the joined table"), ("/cp/late", "the checkpoint"), ("/late", None),
        ("/cp/dead_letters", None),
    ):  # fmt: skip
        given = {"frame": object(), "columns": {}, "name": "rows", "promises": False, "dead_letters": late}
        other = Intake(("k",), None, SCHEMA, specification=table, **given)  # type: ignore[arg-type]
        plan = Reorder(("k",), None, SCHEMA, inputs=(joined, other), specification=table, name="merge")
        assert places_aside(plan) == (("dead_letters", late),)
        assert letters_location(plan, "/cp") == late
        if refused is None:
            check_aside(plan, "/cp")
        else:
            with pytest.raises(OptionError, match=f"dead_letters, {late}, is inside {refused}"):
                check_aside(plan, "/cp")
