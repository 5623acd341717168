"""What a job's statements say, as arguments of the source; and the streams that a program gives to them."""

from typing import Any

import pytest

from upstream.api.job import NamedStream, arguments_of, check_definitions, define_sources, source
from upstream.api.stream import UpdateStream
from upstream.conf.errors import OptionError, QueryRefusedError
from upstream.language.statements import CreateSource, parse, script


def arguments(text: str) -> tuple[dict[str, Any], dict[str, Any] | None, bool]:
    statement = parse(f"CREATE SOURCE s {text}")
    assert isinstance(statement, CreateSource)
    return arguments_of(statement)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "FROM 'f.csv' WITH (key = 'a, b', event_time = 't', watermark_delay = '5 min', max_files_per_trigger = 2)",
            {
                "path": "f.csv",
                "key": ["a", "b"],
                "event_time": "t",
                "watermark_delay": "5 min",
                "maxfilespertrigger": "2",
            },
        ),
        ("FROM 'feed/' WITH (key = 'a', format = 'json')", {"path": "feed/", "key": ["a"], "fileFormat": "json"}),
        ("FROM 'feed/' WITH (format = 'debezium')", {"path": "feed/", "key": None, "fileFormat": "debezium"}),
        ("FROM 'latest:lake/t' WITH (KEY = 'a')", {"path": "lake/t", "key": ["a"], "connector": "latest"}),
        ("FROM 'latest:lake/t'", {"path": "lake/t", "key": None, "connector": "latest"}),
        (
            "FROM 'kafka://h:9092/t' WITH (key = 'a', format = 'avro')",
            {
                "path": None,
                "key": ["a"],
                "connector": "kafka",
                "kafka.bootstrap.servers": "h:9092",
                "subscribe": "t",
                "valueFormat": "avro",
            },
        ),
        (
            "WITH (connector = 'kafka', bootstrap_servers = 'h', topic = 't', key = 'a', sasl_password = env('WORD'))",
            {
                "path": None,
                "key": ["a"],
                "connector": "kafka",
                "kafka.bootstrap.servers": "h",
                "subscribe": "t",
                "kafka.sasl.password": "s3cret",
            },
        ),
    ],
)
def test_a_statement_gives_the_arguments_of_a_source(text, found, monkeypatch):
    monkeypatch.setenv("WORD", "s3cret")
    assert arguments(text) == (found, None, True)


def test_a_source_may_have_a_queue_or_coalesce():
    text = "FROM 'x' WITH (key = 'a', queue = 'in-place', queue.budget = 100, queue.weight = '2', queue.cost = '1 ms')"
    queue = {"policy": "in-place", "budget": "100", "weight": "2", "cost": "1 ms"}
    assert arguments(text) == ({"path": "x", "key": ["a"]}, queue, True)
    assert arguments("FROM 'x' WITH (key = 'a', queue = 'fifo', queue.budget = 'auto')")[1] == {
        "policy": "fifo",
        "budget": "auto",
    }
    assert arguments("FROM 'x' WITH (key = 'a', coalesce = true)")[0]["coalesce"] is True
    assert "coalesce" not in arguments("FROM 'x' WITH (key = 'a', coalesce = false)")[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("coalesce = 'yes'", "coalesce = 'yes'.*true or false"),
        ("queue.budget = 10", "queue.budget has no queue.*queue = 'in-place'"),
        ("queue = 'fifo', queue.size = 10", "a queue has no option queue.size.*queue.budget, queue.weight"),
        ("access_interval = '10 seconds'", "no option access_interval.*its queue has"),
        ("dead_letter_rows = 'conflicts'", "dead_letter_rows='conflicts'.*late"),
    ],
)
def test_what_a_source_does_not_have_is_refused_with_what_has_it(options, message):
    with pytest.raises(OptionError, match=message):
        arguments(f"FROM 'x' WITH (key = 'a', {options})")


def test_rows_that_stay_and_what_is_wrong(monkeypatch):
    monkeypatch.delenv("WORD", raising=False)
    assert arguments("FROM 'x' WITH (key = 'a', updates = false)")[2] is False
    with pytest.raises(OptionError, match="true or false"):
        arguments("FROM 'x' WITH (key = 'a', updates = 1)")
    with pytest.raises(OptionError, match="no such variable"):
        arguments("FROM 'x' WITH (key = env('WORD'))")


NOTHING: Any = None


def test_a_source_is_a_stream_or_a_dataframe_with_a_key():
    stream = object.__new__(UpdateStream)
    assert source("s", stream, updates=False) == NamedStream("s", stream, False)
    with pytest.raises(OptionError, match="an update stream, and has the options event_time"):
        source("s", stream, event_time="t")
    with pytest.raises(OptionError, match=r"has no key.*us\.source\('s', df, key=…"):
        source("s", NOTHING, event_time="t")
    with pytest.raises(OptionError, match="df="):
        source("s", NOTHING, key="k")


@pytest.mark.parametrize("text", ["CREATE SOURCE B FROM 'x' WITH (key = 'k')", "CREATE VIEW b AS SELECT 1 AS n"])
def test_a_name_has_one_source(text):
    statement: Any = parse(text)
    given = NamedStream("b", NOTHING)
    for wanted, sources in (([statement], [given]), ([], [given, NamedStream("B", NOTHING)])):
        with pytest.raises(OptionError, match=r"two definitions of '[bB]'"):
            define_sources(NOTHING, NOTHING, wanted, sources)


@pytest.mark.parametrize(
    ("day", "options"),
    [
        ("2026-01-02", ""),
        ("1767312000", ", time_format = 'epoch_s'"),
        ("2026-01-02", ", watermark = 'adaptive', watermark_delay = '1 minute', target_late = 0.01"),
    ],
)
def test_the_columns_are_checked_without_a_session(tmp_path, day, options):
    """An event time of dates or of numbers is an instant, so windows take it."""
    (tmp_path / "shifts.csv").write_text(f"bus,day\n7,{day}\n")
    text = f"""
    CREATE SOURCE shifts FROM '{tmp_path / "shifts.csv"}' WITH (key = 'BUS', event_time = 'day'{options});
    CREATE MATERIALIZED VIEW v AS SELECT window_end, COUNT(*) AS n
      FROM TUMBLE(shifts, day, INTERVAL '7' DAYS) GROUP BY window_end;
    """
    wanted: Any = [*script(text)]
    check_definitions(wanted, str(tmp_path / "lake"), {})
    wrong: Any = [*script(text.replace("shifts, day,", "shifts, bus,"))]
    with pytest.raises(QueryRefusedError, match="event time"):
        check_definitions(wrong, str(tmp_path / "lake"), {})
