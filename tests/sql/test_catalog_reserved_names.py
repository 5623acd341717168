import pytest
from kit.continuous import CATALOG, TRADE

from upstream.conf.errors import SchemaError
from upstream.operators.relations.plan.nodes import Stream
from upstream.sql.catalog import is_reserved


def test_names_of_ours_are_reserved_in_any_case_and_no_others():
    assert all(map(is_reserved, ("__time", "__X", "_upstream", "_UpStream_seq")))
    assert not any(map(is_reserved, ("time", "_id", "upstream", "")))
    with pytest.raises(SchemaError, match="__op"):
        CATALOG.with_stream(
            Stream("cdc", TRADE.schema.append(TRADE.schema.field("n").with_name("__op")), event_time="t")
        )
