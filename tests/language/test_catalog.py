import pyarrow as pa
import pytest
from kit.continuous import CATALOG, MOMENT, TRADE

from upstream.conf.errors import OptionError, QueryRefusedError, SchemaError
from upstream.language import Catalog, bind
from upstream.language.catalog import function_of, reserved_name
from upstream.operators.relations.plan.nodes import Stream


def test_names_are_found_without_regard_to_case():
    assert CATALOG.stream("TRADE") == TRADE
    assert CATALOG.stream("none") is None
    assert CATALOG.view("FAST")[0] == "fast"
    assert CATALOG.view("trade") is None
    assert CATALOG.names() == ["Domains", "Requests", "buses", "fast", "quote", "shift", "trade"]


@pytest.mark.parametrize("name", ["Trade", "FAST", "select", ""])
def test_names_that_are_taken_or_words_of_the_language(name):
    with pytest.raises(OptionError):
        CATALOG.with_view(name, "SELECT * FROM trade")
    with pytest.raises(OptionError):
        CATALOG.with_stream(Stream(name, TRADE.schema, event_time="t"))


@pytest.mark.parametrize(
    ("stream", "part"),
    [
        (Stream("s", TRADE.schema, event_time="tt"), "did you mean 't'"),
        (Stream("s", TRADE.schema, event_time=""), "has no column ''"),
        (Stream("s", TRADE.schema, key=("symbol",), event_time="t"), "did you mean 'sym'"),
        (Stream("s", pa.schema({"t": pa.int64()}), event_time="t"), "the type int64"),
        (Stream("s", pa.schema({"t": MOMENT, "T": MOMENT}), event_time="t"), "differ in more than case"),
    ],
)
def test_streams_that_cannot_be_read(stream, part):
    with pytest.raises(SchemaError, match=part.replace("(", r"\(")):
        Catalog().with_stream(stream)


def test_a_position_orders_updates_for_newest_rows_alone():
    log = Stream("log", pa.schema({"k": pa.string(), "at": pa.int64()}), key=("k",), event_time="at", updates=True)
    catalog = Catalog().with_stream(log)
    assert bind("SELECT COUNT(*) AS n FROM LATEST(log)", catalog).reads == ("log",)
    for text in ("SELECT k FROM log [RANGE 1 HOUR]", "SELECT k, window_end FROM TUMBLE(log, at, INTERVAL '1' HOUR)"):
        with pytest.raises(QueryRefusedError, match=r"'log' have no event time: 'at' is a position.*LATEST\(log\)"):
            bind(text, catalog)


def test_updates_need_a_key_and_stored_relations_no_time():
    with pytest.raises(OptionError, match="without a key"):
        Catalog().with_stream(Stream("s", TRADE.schema, event_time="t", updates=True))
    assert Catalog().with_stream(Stream("r", pa.schema({"k": pa.string()}), static=True)).names() == ["r"]


def test_names_of_ours_are_reserved_in_any_case_and_no_others():
    def reserved(name):
        return reserved_name(pa.schema({name: pa.int64()})) is not None

    assert all(map(reserved, ("__time", "__X", "_upstream", "_UpStream_seq", "", "a\0b", "a\nb", "\x7f", "x" * 1_001)))
    assert not any(map(reserved, ("time", "_id", "upstream", " ", "a/b", "..", "é", "e\u0301", "x" * 1_000)))
    nested = pa.schema({"s": pa.list_(pa.struct({"a\0": pa.int64()}))})
    assert reserved_name(nested) == "'a\\x00'"
    assert len(reserved_name(pa.schema({"x" * 10_000_000: pa.int64()}))) < 100
    with pytest.raises(SchemaError, match="__op"):
        CATALOG.with_stream(
            Stream("cdc", TRADE.schema.append(TRADE.schema.field("n").with_name("__op")), event_time="t")
        )


def test_a_function_is_of_its_declaration_and_not_of_its_spelling():
    text = "CREATE FUNCTION f(x DOUBLE, d DECIMAL(5, 2)) RETURNS BIGINT AS 'm:f'"
    found = function_of(text)
    assert found.parameters == pa.schema({"x": pa.float64(), "d": pa.decimal128(5, 2)})
    assert (found.name, found.type, found.place) == ("f", pa.int64(), "m:f")
    assert function_of(text.lower().replace(" as", "\n -- a comment\n AS")) == found


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("f() RETURNS DOUBLE AS 'm:f'", "no parameter"),
        ("f(x DOUBLE) RETURNS DOUBLE AS 'm'", "names no function"),
        ("f(x NUMBERS) RETURNS DOUBLE AS 'm:f'", "schema='x NUMBERS'"),
        ("f(x DOUBLE) RETURNS AS 'm:f'", "schema='result '"),
        ("abs(x DOUBLE) RETURNS DOUBLE AS 'm:f'", "ABS is a function of SQL"),
        ("Sum(x DOUBLE) RETURNS DOUBLE AS 'm:f'", "SUM is a function of SQL"),
        ("Fast(x DOUBLE) RETURNS DOUBLE AS 'm:f'", "is taken"),
    ],
)
def test_functions_that_cannot_be_declared(text, part):
    with pytest.raises(OptionError, match=part):
        CATALOG.with_function(text.partition("(")[0], f"CREATE FUNCTION {text}")
