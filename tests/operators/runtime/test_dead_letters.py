import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from upstream.operators.runtime.dead_letters import DeadLetterRows, late_rows_of
from upstream.plan.nodes import Reorder, Window

SCHEMA = StructType([StructField("k", LongType())])


class Spec:
    """Of nothing that runs."""

    def identity(self):
        return {}


def window(late):
    return Window(("k",), None, SCHEMA, specification=Spec(), late_location=late)


def distinct(late):
    return Reorder(("k",), None, SCHEMA, specification=Spec(), name="distinct", late_location=late)


@pytest.mark.parametrize(("node", "name"), [(window, "late"), (distinct, "late-distinct")])
def test_a_relative_folder_is_that_of_the_driver_and_files_have_the_plans_name(node, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = late_rows_of(node("aside"))
    assert found == DeadLetterRows(str(tmp_path / "aside"), name)
    assert found.name == node("aside").late_name
    assert late_rows_of(node(None)) is None


def test_a_batch_that_is_run_again_writes_the_same_file(tmp_path):
    aside = DeadLetterRows(str(tmp_path), "late-merge")
    for _ in range(2):
        aside.write(7, 3, pa.table({"k": [1]}))
    aside.write(8, 3, pa.table({"k": [1]}))
    assert sorted(each.name for each in tmp_path.glob("*.parquet")) == [
        "late-merge-000000007-00003.parquet",
        "late-merge-000000008-00003.parquet",
    ]
