import pytest

from upstream.cli.sql import StreamChoice
from upstream.conf.errors import OptionError


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("buses=feed/;key=vehicle_id", StreamChoice("buses", "feed/", ("vehicle_id",))),
        (" b = feed/*.csv ; key = a , b ; time = t ;", StreamChoice("b", "feed/*.csv", ("a", "b"), "t")),
        (
            "b=feed/year=2016/;key=k;timeFormat=epoch_ms",
            StreamChoice("b", "feed/year=2016/", ("k",), None, {"timeFormat": "epoch_ms"}),
        ),
        (
            "b=kafka://h:9092/trades;key=k;valueFormat=json",
            StreamChoice(
                "b",
                None,
                ("k",),
                None,
                {
                    "connector": "kafka",
                    "kafka.bootstrap.servers": "h:9092",
                    "subscribe": "trades",
                    "valueFormat": "json",
                },
            ),
        ),
    ],
)
def test_name_source_key_time_and_options(text, choice):
    assert StreamChoice.parse(text) == choice


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("feed/;key=k", "Expected: NAME=PATH"),
        ("=feed/;key=k", "Expected: NAME=PATH"),
        ("b=;key=k", "Expected: NAME=PATH"),
        ("b=feed/", "has no key"),
        ("b=feed/;key= ,", "has no key"),
        ("b=feed/;key=k;time", "has 'time' after a semicolon.*OPTION=VALUE"),
        ("b=feed/;key=k;delay=", "has 'delay=' after"),
        ("b=feed/;key=k;KEY=j", "has KEY twice"),
        ("b=feed/;key=k;coalesce=true", "has coalesce.*options of the source"),
    ],
)
def test_what_is_no_stream(text, message):
    with pytest.raises(OptionError, match=message):
        StreamChoice.parse(text)
