"""No query's table is where a checkpoint, input or a stored relation is."""

import os

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from kit.continuous import BUSES, QUOTE
from kit.failures import misused
from kit.registries import COUNTS, begun, register

from upstream.hosting.registry.changes import Change
from upstream.hosting.registry.edits import check_tables, declare, define_stream, opened, record
from upstream.hosting.registry.registry import registry_now


@pytest.fixture
def lake(tmp_path):
    """A folder of tables, by another name: what is compared are the places behind links."""
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "lake")
    return tmp_path / "lake"


def test_tables_stay_out_of_the_checkpoint(lake):
    real = str(lake.parent / "real")
    for to in (f"{lake}/cp", f"{lake}/cp/offsets"):
        misused("the checkpoint", opened, f"{real}/cp", to, None)
    opened(f"{real}/cp", str(lake), None)
    define_stream(f"{real}/cp", BUSES)
    misused("the checkpoint and the table of the query 'cp' are both", register, f"{real}/cp", "cp")
    register(f"{real}/cp", "offsets")


def test_tables_stay_out_of_what_streams_read(lake):
    checkpoint, real = begun(lake.parent, str(lake)), lake.parent / "real"
    define_stream(checkpoint, BUSES, [f"{real}/feed", f"{real}/days/*/in"])
    define_stream(checkpoint, QUOTE, [f"{real}/deep/er/quotes.csv", f"{real}/*.csv"])
    for name, met in {"feed": "are both", "days": "is above", "deep": "is above"}.items():
        misused(rf"the table of the query '{name}'.* {met} ", register, checkpoint, name)
    register(checkpoint, "fed")
    for path, wrong in ((f"{real}/fed/in", "is above"), (str(lake.parent), "is inside"), (f"{real}/*", "are both")):
        misused(wrong, define_stream, checkpoint, BUSES, [path])
    misused("are both", check_tables, registry_now(checkpoint), checkpoint, [("the source", f"{real}/fed")], [])
    misused("are both", check_tables, registry_now(checkpoint), checkpoint, [], [("late_location", str(real))])


def test_tables_and_relations_stay_apart(lake):
    checkpoint = begun(lake.parent, str(lake))
    register(checkpoint, "made")
    for name in ("routes", "made", "made/deep"):
        write_deltalake(str(lake / name), pa.table({"id": ["a"]}))
    declare(checkpoint, "r", str(lake.parent / "real" / "routes"))
    misused("the relation 'r' and the table of the query 'routes' are both", register, checkpoint, "routes", COUNTS)
    misused("is above the relation", declare, checkpoint, "deep", str(lake / "made" / "deep"))
    declare(checkpoint, "of_query", str(lake / "made"))
    misused("is that of the relation 'of_query'", record, checkpoint, Change("drop", "made", delete_table=True))
    record(checkpoint, Change("drop_relation", "of_query"))
    record(checkpoint, Change("drop", "made", delete_table=True))
