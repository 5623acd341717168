"""Jobs that host queries are found beside their tables, before and after they run."""

import re

import pyarrow as pa
import pytest
from kit.registries import begun, register

from upstream.hosting.registry import texts_now
from upstream.workbench.jobs import absence_from_query, hosted_jobs, job_of
from upstream.workbench.watch import UnknownNameError, Watch

from .hosted import NOW_US, Job


def test_a_job_is_found_by_its_checkpoint_its_folder_and_its_tables(tmp_path):
    job = Job(tmp_path)
    for place in (job.checkpoint, tmp_path):
        (found,) = hosted_jobs(Watch([str(place)], {})).values()
        assert (found.name, found.checkpoint) == ("cp", str(job.checkpoint))
    begun_at = tmp_path / "other"
    (begun_at / "lake").mkdir(parents=True)
    (begun_at / "cp").symlink_to(begun_at / "lake_checkpoint")
    (begun_at / "lake_checkpoint").mkdir()
    begun(begun_at, str(begun_at / "lake"))
    assert list(hosted_jobs(Watch([str(begun_at / "lake")], {}))) == ["lake"], (
        "by the convention of `upstream run --to`"
    )


def test_jobs_of_one_name_are_told_apart(tmp_path):
    for name in ("a", "b"):
        Job(tmp_path / name)
    assert list(hosted_jobs(Watch([str(tmp_path)], {}))) == ["cp", "b/cp"]


def test_the_last_batch_and_the_registry_of_a_job(tmp_path):
    Job(tmp_path)
    watch = Watch([str(tmp_path)], {})
    found = job_of(watch, "cp", None)
    command = found.last_command()
    assert (found.last_batch(), command.batch, command.version) == (4, 4, 2)
    assert found.registered[0].version == 2
    assert found.spelled("PER_route") == "per_route"
    assert not found.runs(NOW_US)
    with pytest.raises(UnknownNameError, match="no query 'none'"):
        found.spelled("none")
    with pytest.raises(UnknownNameError, match="no job that hosts queries is named 'x'"):
        job_of(watch, "x", None)


def test_a_job_that_has_never_run_is_found_too(tmp_path):
    checkpoint = begun(tmp_path)
    register(checkpoint, "q")
    found = job_of(Watch([str(tmp_path)], {}), None, None)
    assert (found.last_batch(), found.last_command()) == (-1, None)


@pytest.mark.parametrize(
    ("query", "speed", "verdict", "sentence"),
    [
        ("fast", 3.5, "filtered", "leaves out the key's newest row: speed > .* does not hold for speed=3.5"),
        ("odd", 3.5, "filtered", r"newest row: isnan\(speed\) does not hold for speed=3.5\.$"),
        ("fast", 12.5, "waiting", "a later batch commits it"),
        ("per_route", 12.5, "waiting", "only conditions on newest rows can be tried again"),
        ("none", 12.5, "waiting", "only conditions on newest rows can be tried again"),
        ("fast", None, "deleted", "is a deletion"),
    ],
)
def test_why_a_query_has_no_row_of_a_key(tmp_path, query, speed, verdict, sentence):
    checkpoint = str(Job(tmp_path).checkpoint)
    register(checkpoint, "odd", "SELECT vehicle_id FROM LATEST(buses) WHERE isnan(speed)")
    schema = texts_now(checkpoint)[1].streams["buses"].schema
    row = None if speed is None else pa.Table.from_pylist([{"speed": speed}], schema)
    found, text = absence_from_query(str(tmp_path / "lake" / query), checkpoint, row)
    assert found == verdict
    assert re.search(sentence, text)
