import pyarrow as pa
import pytest

from upstream.conf.errors import OptionError, SchemaError
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.tables.lookup import planned

STREAM = pa.schema([("k", pa.string()), ("id", pa.int64()), ("v", pa.float64()), pa.field(SYSTEM, SYSTEM_TYPE)])
TABLE = pa.schema([
    pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), pa.field("w", pa.int32(), nullable=False),
    ("_upstream_seq", pa.int64()),
])  # fmt: skip


def plan(on=None, how="left", columns=None, suffix="_table", **storage):
    return planned(STREAM, TABLE, "there", on or {"id": "id"}, how, columns, suffix, storage)


def test_all_columns_but_those_joined_by_and_our_own_are_added_before_the_system_column():
    found = plan()
    assert found.schema.names == ["k", "id", "v", "v_table", "w", SYSTEM]
    assert found.schema.field("w").nullable
    assert found.columns == (("v_table", "v"), ("w", "w"))
    assert found.table.names == ["id", "v", "w"]
    assert plan(columns=["w"]).table.names == ["id", "w"]
    assert plan(columns=["id"]).schema.names == ["k", "id", "v", "id_table", SYSTEM]
    assert plan(columns=["_upstream_seq"]).schema.names == ["k", "id", "v", "_upstream_seq", SYSTEM]
    assert plan(how="semi").schema == STREAM
    assert plan(how="anti").table.names == ["id"]
    assert [plan(how=how).one for how in ("inner", "left", "semi", "anti")] == [True, True, False, False]


def test_text_and_representation_have_no_secret():
    found = plan(on={"id": "id"}, secret_key="s3cr3t")
    assert found.text == "join with the table there, on id, how left"
    assert "s3cr3t" not in repr(found)
    assert found.storage == (("secret_key", "s3cr3t"),)
    assert hash(found) == hash(plan(secret_key="s3cr3t"))


def test_what_does_not_fit_is_refused():
    for problem, match in (
        ({"on": {"id": "no"}}, "no, which the table"),
        ({"on": {"no": "id"}}, "no, which the stream"),
        ({"on": {"id": "w"}}, "int64 and w of type int32"),
        ({"on": {"v": "v"}}, "double and v of type string"),
        ({"columns": ["no"]}, "has no no"),
        ({"columns": ["w", "w"]}, "called w"),
    ):
        with pytest.raises(SchemaError, match=match):
            plan(**problem)
    assert plan(on={"k": "v"}, columns=["v"], suffix="_x").schema.names[-2] == "v_x"
    with pytest.raises(OptionError, match="no columns"):
        plan(how="semi", columns=["w"])
