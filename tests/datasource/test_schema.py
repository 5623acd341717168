"""The recorded schema of each source of a query."""

from pathlib import Path

from upstream.datasource.spark_reader import check_source, source_schema


def columns(given: dict[str, str]) -> list[str]:
    """What a source with these options gives, without the system column."""
    schema = source_schema(given)
    assert not isinstance(schema, str)
    return schema.names[:-1]


def feeds(tmp_path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Two sources with the query's checkpoint."""
    for name, text in (("a", "k,x\n1,2\n"), ("b", "k,y,z\n1,2,3\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.csv").write_text(text)
    checkpoint = str(tmp_path / "checkpoint")
    first, second = ({"path": str(tmp_path / name), "checkpointLocation": checkpoint} for name in "ab")
    return first, second


def test_two_sources_with_one_checkpoint_keep_their_own_columns(tmp_path):
    first, second = feeds(tmp_path)
    for _ in range(2):  # as inferred, and as recorded
        assert columns(first) == ["k", "x"]
        assert columns(second) == ["k", "y", "z"]
    (tmp_path / "a" / "rows.csv").write_text("k,x,new\n1,2,3\n")
    assert columns({**first, "maxRowsPerTrigger": "10"}) == ["k", "x"]
    assert columns({**first, "PATH": first["path"], "checkpointLocation": str(tmp_path / "other")}) == ["k", "x", "new"]


def test_one_folder_read_by_two_times_is_two_sources(tmp_path):
    first, _ = feeds(tmp_path)
    (tmp_path / "a" / "rows.csv").write_text("k,at,other\n1,2024-01-01 00:00:00,2024-01-01 00:00:00\n")
    stamped = {"eventTime": "entry", "watermark": "arrival"}
    assert columns({**first, "eventTime": "at"}) == ["k", "at", "other"]
    assert columns({**first, **stamped}) == ["k", "at", "other", "entry"]


def test_a_check_infers_again_until_the_query_has_begun(tmp_path):
    given, _ = feeds(tmp_path)
    assert columns(given) == ["k", "x"]
    (tmp_path / "a" / "rows.csv").write_text("k,x,new\n1,2,3\n")
    assert columns(given) == ["k", "x"], "what the check has found"
    check_source(given)
    assert columns(given) == ["k", "x", "new"]
    (tmp_path / "checkpoint" / "offsets").mkdir()
    (tmp_path / "checkpoint" / "offsets" / "0").touch()
    (tmp_path / "a" / "rows.csv").write_text("k\n1\n")
    check_source(given)
    assert columns(given) == ["k", "x", "new"]
