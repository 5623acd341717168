"""`upstream latest --sql`: the job as statements, which make the same stream and table."""

import pytest

from upstream.api.job import arguments_of
from upstream.cli.latest import divided_options
from upstream.language.statements import Create, CreateSource, script

from .in_process import done, refused

FEED = ("latest", "--from", "it's/*.csv", "--key", "a,b", "--event-time", "t", "--to", "lake/newest")


def statements(*arguments: str, **environment: str) -> tuple[str, CreateSource, Create]:
    text = done(*arguments, "--sql", **environment)
    source, view = script(text)
    assert isinstance(source, CreateSource)
    assert isinstance(view, Create)
    return text, source, view


def test_a_feed_is_a_source_that_coalesces_and_a_view_of_its_newest_rows(tmp_path):
    text, source, view = statements(*FEED, "--once", "--where", "c <> 'x\\y'", "--buckets", "4", "-o", "sep=;")
    assert text.splitlines()[0].startswith("-- upstream run job.sql --to /")
    assert text.splitlines()[0].endswith("/lake --once")
    arguments, queue, updates = arguments_of(source)
    assert arguments["path"] == "it's/*.csv"
    assert arguments["deadletters"].endswith("/lake/newest_dead_letters")
    assert {name: value for name, value in arguments.items() if name not in ("path", "deadletters")} == {
        "key": ["a", "b"], "event_time": "t", "coalesce": True, "sep": ";", "where": "c <> 'x\\y'",
        "maxrowspertrigger": "2000000",
    }  # fmt: skip
    assert (queue, updates) == (None, True)
    assert view == Create("newest", "SELECT * FROM LATEST(feed)", buckets=4)


def test_a_secret_is_a_variable_and_a_deletion_a_condition(monkeypatch):
    kafka = ("latest", "--from", "kafka://h:9092/t", "-o", "kafka.sasl.password=s3cret")
    text, source, view = statements(
        *kafka, "--key", "k", "--event-time", "t", "--to", "feed", "--delete-when", "op = 'd'"
    )
    assert "s3cret" not in text
    assert "kafka.sasl.password = env('KAFKA_SASL_PASSWORD')" in text
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", "s3cret")
    arguments, _, _ = arguments_of(source)
    assert arguments["path"] is None
    assert (arguments["kafka.bootstrap.servers"], arguments["subscribe"]) == ("h:9092", "t")
    assert arguments["kafka.sasl.password"] == "s3cret"
    assert (view.name, view.text) == ("feed", "SELECT * FROM LATEST(rows)\nWHERE NOT COALESCE(op = 'd', FALSE)")


def test_change_events_need_neither_key_nor_time():
    _, source, _ = statements("latest", "--from", "kafka://h:9092/t", "--format", "debezium", "--to", "orders")
    arguments, _, _ = arguments_of(source)
    assert (arguments["key"], arguments["valueformat"], "event_time" in arguments) == (None, "debezium", False)
    assert "Missing option '--key'" in refused("latest", "--from", "x", "--format", "json", "--to", "t", "--sql")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--metrics", "m", "--target", "p99 < 1 s"), "a job's file has no --target, --metrics"),
        (("--sequence-by", "pos"), "no --sequence"),
        (("--delete-when", "gone"), "no column to leave out"),
        (("--to", "lake/a.b"), "'a.b' cannot name a query"),
    ],
)
def test_what_a_file_has_not_is_refused(more, message):
    assert message in refused(*FEED, *more, "--sql")
    assert "has an event time" in refused("latest", "--from", "x", "--key", "k", "--to", "t", "--sql")


def test_a_condition_over_a_column_that_is_not_there_needs_no_java(tmp_path):
    (tmp_path / "feed.csv").write_text("k,t,op\na,1,u\n")
    feed = ("latest", "--from", "feed.csv", "--key", "k", "--to", "lake", "--once")
    found = refused(*feed, "--delete-when", "opp = 'd'", cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert "--delete-when=\"opp = 'd'\": there is no column 'opp'" in found
    assert "expected: one of k, t, op" in found.lower()
    assert "did you mean 'op'?" in found


def test_options_of_the_table_are_its_own():
    given = {"nullMeans": "unchanged", "Retention": "2 days", "sep": ";", "deadLetters": "d", "buckets": "4"}
    source = {"sep": ";", "deadLetters": "d", "buckets": "4"}
    assert divided_options(given) == (source, {"nullMeans": "unchanged", "Retention": "2 days"})
    assert "a job's file has no nullMeans" in refused(*FEED, "-o", "nullMeans=unchanged", "--sql")
