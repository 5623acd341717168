"""Each format: what its rows become, what cannot be read and how that is told, compressed or not."""

import datetime as dt
import decimal
import gzip
import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.ranges import read_range

from upstream.conf.errors import FeedChangedError, OptionError, SchemaError
from upstream.datasource.connectors.contract import Limit

UTC = dt.timezone.utc
ZEEK = (
    "#separator "
    "\\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tconn\n#open\t2024-01-01-00-00-00\n"
    "#fields\tts\tid.orig_h\tid.orig_p\tproto\trtt\tok\tanswers\tTTLs\tnote\n"
    "#types\ttime\taddr\tport\tenum\tinterval\tbool\tvector[string]\tset[interval]\tstring\n"
)
ROWS = (
    "1521911720.865716\t10.0.0.1\t41772\tudp\t0.000870\tT\ta,-,b\t1.5,2.000000\tx y\n"
    "1521911721.000001\t::1\t53\ttcp\t-\tF\t(empty)\t-\t(empty)\n"
)


def compress(text: bytes, codec: str) -> bytes:
    if codec == "gzip":
        return gzip.compress(text)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(text)
    return sink.getvalue().to_pybytes()


class TestDelimited:
    def test_malformed_lines_are_reported_one_by_one(self, folder, follow):
        lines = ["k,v"] + [f"{n},x" for n in range(2000)]
        lines[7] = "seven,x"
        lines[100] = "1,2,3"
        lines[101] = "1"
        lines[102] = '5,"open'
        lines[1999] = "1,\udcff"
        path = folder / "a.csv"
        path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape") + b"\n")
        feed = follow("k int64,v string", splitBytes="3000")
        feed.step()
        assert [row["k"] for row in feed.rows] == [n - 1 for n in range(1, 2001) if n not in (7, 100, 101, 102, 1999)]
        assert [(bad["line"], bad["text"]) for bad in feed.malformed] == [
            (8, "seven,x"), (101, "1,2,3"), (102, "1"), (103, '5,"open'), (2000, "1,\ufffd"),
        ]  # fmt: skip
        data = path.read_bytes()
        for bad in feed.malformed[:4]:
            name, at = bad["place"].split(", byte ")
            assert name == str(path)
            assert data[int(at) :].startswith(bad["text"].encode())
        words = ("'seven' in column 'k'", "3 fields", "1 fields", "multiLine=true", "column 'v' is not UTF-8")
        assert all(word in bad["reason"] for word, bad in zip(words, feed.malformed, strict=True))

    def test_numbers_of_rows_do_not_depend_on_the_columns_read(self, folder, follow):
        (folder / "a.csv").write_text("k,t\nx,1\n2,2\n3\n4,4\n")
        feed = follow("k int64,t int64")
        feed.step()
        chunks = list(feed.connector.read(feed.last[0], ["t"], type(feed.malformed)()))
        assert [(chunk.rows.to_pydict(), list(chunk.index)) for chunk in chunks] == [({"t": [1, 2, 4]}, [0, 1, 3])]
        assert [number for _, number, _ in read_range(feed.connector, feed.last[0], feed.malformed)] == [1, 3]

    def test_inferred_types(self, folder, follow):
        (folder / "a.csv").write_text(
            "i,f,b,s,n,d,t,z,w,nano\n"
            "1,1.5,true,x,,2024-01-01,2024-01-01 10:00:00,2024-01-01T10:00:00+02:00,10:00:00,2024-01-01 "
            "10:00:00.123456789\n"
        )
        feed = follow()
        assert {field.name: str(field.type) for field in feed.connector.schema()} == {
            "i": "int64", "f": "double", "b": "bool", "s": "string", "n": "string", "d": "date32[day]",
            "t": "timestamp[us]", "z": "timestamp[us, tz=UTC]", "w": "string", "nano": "string",
        }  # fmt: skip
        (row,) = feed.step()
        assert row["t"] == dt.datetime(2024, 1, 1, 10)
        assert row["z"] == dt.datetime(2024, 1, 1, 8, tzinfo=UTC)
        assert row["w"] == "10:00:00"

    @pytest.mark.parametrize(
        ("values", "as_key", "otherwise"),
        [
            (["123", "00123"], "string", "string"),
            (["123", "-5", "0"], "int64", "int64"),
            (["0", "-0"], "string", "int64"),
            (["9223372036854775807"], "int64", "int64"),
            (["9223372036854775808", "9223372036854775809"], "string", "string"),
            (["9223372036854775808", "1.5"], "string", "double"),
            (["1.5", "1.50"], "string", "double"),
            (["true", "false"], "bool", "bool"),
            (["true", "True"], "string", "bool"),
            (["2024-01-01", "2024-12-31"], "date32[day]", "date32[day]"),
            (["2024-01-01T10:00:00", "2024-01-01 10:00:00"], "string", "timestamp[us]"),
            (["", ""], "string", "string"),
        ],
    )
    def test_what_names_something_stays_as_it_is_written(self, folder, connect, values, as_key, otherwise):
        (folder / "a.csv").write_text("Id,v\n" + "".join(f"{value},x\n" for value in values))
        assert str(connect(key=("id",)).schema().field("Id").type) == as_key
        assert str(connect().schema().field("Id").type) == otherwise

    @pytest.mark.parametrize("many", [False, True])
    def test_a_later_key_that_is_written_otherwise_is_no_other_key(self, folder, follow, many):
        (folder / "a.csv").write_text("v,k\nx,123\n")
        feed = follow(key=("K",), header="true")
        assert feed.step() == [{"v": "x", "k": 123}]
        good = ["0", "-5", "9223372036854775807", "1", "", "10"]
        bad = ["00123", "+123", "-0", "-07", " 123", "123 ", "00", "0x7B", "12a", "9223372036854775808"]
        # Long enough for the reader that takes whole blocks, too.
        rest = [str(number) for number in range(100_000, 130_000)] if many else []
        texts = [each for pair in itertools.zip_longest(bad, good) for each in pair if each is not None] + rest
        (folder / "b.csv").write_text("v,k\n" + "".join(f"y,{text}\n" for text in texts))
        assert [row["k"] for row in feed.step()] == [int(each) if each else None for each in texts if each not in bad]
        assert [each["text"] for each in feed.malformed] == [f"y,{text}" for text in texts if text in bad]
        reasons = [each["reason"] for each in feed.malformed]
        assert reasons[0].startswith("'00123' in column 'k' is not written as its int64 is")
        assert reasons[-1] == "'9223372036854775808' in column 'k' is not of type int64"

    @pytest.mark.parametrize("many", [False, True])
    def test_a_whole_number_has_decimal_digits(self, folder, follow, connect, many):
        rest = [str(number) for number in range(100_000, 130_000)] if many else []
        (folder / "a.csv").write_text(
            "k,v,w\n" + "".join(f"a,{v},0x10\n" for v in ["16", "0x10", " 7 ", "-0X1", *rest])
        )
        feed = follow("k string, v int32, w string", header="true")
        assert [row["v"] for row in feed.step()] == [16, 7, *map(int, rest)]
        reasons = [each["reason"] for each in feed.malformed]
        assert reasons == [f"'{text}' in column 'v' is not of type int32" for text in ("0x10", "-0X1")]
        assert [str(connect().schema().field(name).type) for name in "vw"] == ["string", "string"]

    def test_a_type_that_differs_between_files_is_text(self, folder, connect):
        (folder / "a.csv").write_text("k,v,w,t\n1,1,1,0012\n")
        (folder / "b.csv").write_text("k,v,w,t\n2,x,1.5,1\n")
        # The time counts, and names nothing.
        assert [str(field.type) for field in connect(time="t").schema()] == ["int64", "string", "double", "int64"]

    def test_line_ends_within_quotes(self, folder, follow):
        (folder / "a.csv").write_text('k,"v\nw"\n1,"a\nb"\n2,c\nbad,c\n3,"d\n')
        feed = follow(pa.schema([("k", pa.int64()), ("v\nw", pa.string())]), multiLine="true")
        assert [row["v\nw"] for row in feed.step(limit=Limit(rows=1))] == ["a\nb", "c"]
        assert [(bad["line"], bad["text"]) for bad in feed.malformed] == [(6, "bad,c")]
        with (folder / "a.csv").open("a") as file:
            file.write('\n"\n4,e\n')
        assert [row["v\nw"] for row in feed.step()] == ["d\n\n", "e"]


class TestJson:
    def test_rows(self, folder, follow):
        (folder / "a.jsonl").write_text(
            '\ufeff{"k":1,"t":"2024-01-01T00:00:00","o":{"x":[1,2]},"n":null}\n\n  \n{"t":null,"k":2,"more":1}\r\n'
        )
        feed = follow()
        assert str(feed.connector.schema().field("o").type) == "struct<x: list<item: int64>>"
        assert str(feed.connector.schema().field("n").type) == "string"
        rows = feed.step()
        assert [row["k"] for row in rows] == [1, 2]
        assert rows[0]["o"] == {"x": [1, 2]}
        assert rows[0]["t"] == dt.datetime(2024, 1, 1)
        assert feed.malformed == []

    def test_malformed(self, folder, follow):
        good = '{"k":1,"t":"2024-01-01T00:00:00Z"}'
        bad = ['{"k":"x"}', '{"k":1', good, "[1]", good + good, '{"k":1.5}', '{"t":"then"}']
        lines = [good, "not json", good, *bad, good]
        (folder / "a.json").write_bytes("\n".join(lines).encode() + b'\n{"k":1,"t":"\xff"}\n')
        feed = follow(pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC"))]))
        assert len(feed.step()) == 4
        assert [bad["line"] for bad in feed.malformed] == [2, 4, 5, 7, 8, 9, 10, 12]
        words = ("", "'k' is a string", "", "an array", "2 objects", "'1.5'", "then", "UTF-8")
        assert all(word in bad["reason"] for word, bad in zip(words, feed.malformed, strict=True))


class TestZeek:
    def test_rows(self, folder, follow):
        (folder / "conn.log").write_text(ZEEK + ROWS + "#close\t2024-01-01-01-00-00\n" + ZEEK + ROWS)
        feed = follow()
        rows = feed.step()
        assert len(rows) == 4
        assert rows[0] == {
            "ts": dt.datetime(2018, 3, 24, 17, 15, 20, 865716, UTC), "id.orig_h": "10.0.0.1", "id.orig_p": 41772,
            "proto": "udp", "rtt": 0.00087, "ok": True, "answers": ["a", None, "b"], "TTLs": [1.5, 2.0], "note": "x y",
        }  # fmt: skip
        assert rows[1]["ts"].microsecond == 1
        assert (rows[1]["rtt"], rows[1]["answers"], rows[1]["TTLs"], rows[1]["note"]) == (None, [], None, "")
        assert rows[2:] == rows[:2]

    def test_malformed(self, folder, follow):
        bad = ROWS.splitlines()[0]
        lines = [bad.replace("41772", "x"), bad + "\tmore", bad.replace("1.5", "y"), bad.replace("1521911720", "then")]
        (folder / "conn.log").write_text(ZEEK + ROWS + "\n".join(lines) + "\n#close\n")
        feed = follow()
        assert len(feed.step()) == 2
        assert [each["line"] for each in feed.malformed] == [11, 12, 13, 14]
        assert feed.malformed[0]["reason"] == "'x' in field 'id.orig_p' is not a port"
        assert feed.malformed[1]["reason"] == "10 fields instead of 9"

    def test_its_header_alone(self, folder, follow):
        (folder / "conn.log").write_text(ZEEK[:60])
        feed = follow(fileFormat="zeek")
        with pytest.raises(SchemaError):
            feed.connector.schema()
        (folder / "conn.log").write_text(ZEEK)
        assert feed.connector.schema().names[0] == "ts"
        assert feed.step() == []
        with (folder / "conn.log").open("a") as file:
            file.write(ROWS)
        assert len(feed.step()) == 2

    def test_instants_are_exact(self, folder, follow):
        stamps = [1521911720000000 + n * 999983 for n in range(5000)]
        (folder / "t.log").write_text(
            "#separator \\x09\n#fields\tts\n#types\ttime\n" + "".join(f"{s // 10**6}.{s % 10**6:06}\n" for s in stamps)
        )
        feed = follow()
        epoch = dt.datetime(1970, 1, 1, tzinfo=UTC)
        assert [(row["ts"] - epoch) // dt.timedelta(microseconds=1) for row in feed.step()] == stamps


AT = dt.datetime(2024, 1, 1, 10)


@pytest.mark.parametrize(
    ("name", "text", "schema", "options", "expected", "bad"),
    [
        ("csv", "k\n00123\n123\n", "k int64", {}, [(123,), (123,)], []),  # whose type is given
        ("csv", 'k,v\n,\nNA,NA\n1,""\n2,"NA"\n', "k int64,v string", {"nullValue": "NA"},
         [(None, None), (None, None), (1, ""), (2, "NA")], []),
        *(
            ("csv", "\ufeff1|'a|b'\n2|c\n", schema, {"header": "false", "sep": "|", "quote": "'"},
             [(1, "a|b"), (2, "c")], [])
            for schema in (None, "x int64,y string")
        ),
        ("tsv", "k\tv\n1\tx,y\n", None, {}, [(1, "x,y")], []),
        ("csv", "k,v\n1,x\r2,y\n3,z\n", "k int64,v string", {}, [(3, "z")], ["1,x\r2,y"]),
        ("csv", "k\n1.50\n2.345\n", pa.schema([("k", pa.decimal128(10, 2))]), {}, [(decimal.Decimal("1.50"),)],
         ["2.345"]),
        *(
            ("csv", "t\n2024-01-01T10:00:00\n2024-01-01T10:00:00Z\nx\n2024-01-01\n",
             pa.schema([("t", pa.timestamp("us", zone))]), {},
             [(AT,), (AT.replace(tzinfo=UTC),), (AT.replace(hour=0),)], ["x"])
            for zone in (None, "UTC")
        ),
        ("json", '{"k":12345678901234567890,"f":1e30}\n{"k":12345678901234567891,"f":0.5}\n', None, {},
         [(decimal.Decimal(12345678901234567890), 1e30), (decimal.Decimal(12345678901234567891), 0.5)], []),
        ("json", '{"k":1}\n{"k\n{"k":2}\n', None, {}, [(1,), (2,)], ['{"k']),
        # Arrow's parser ends the process with it where it comes first.
        ("jsonl", 'null\n{"k":1}\nnull\n', "k int64", {}, [(1,)], ["null", "null"]),
    ],
)  # fmt: skip
def test_small_files(folder, follow, name, text, schema, options, expected, bad):
    (folder / f"a.{name}").write_text(text, newline="")
    feed = follow(schema, **options)
    assert [tuple(row.values()) for row in feed.step()] == expected
    assert [each["text"] for each in feed.malformed] == bad
    if "\r" in text:
        assert "2 rows" in feed.malformed[0]["reason"]
    if "header" in options:
        assert list(feed.rows[0]) == (["x", "y"] if schema else ["_c0", "_c1"])


@pytest.mark.parametrize(
    ("name", "text", "kind", "error", "message"),
    [
        ("a.csv", b"k\n1\n", pa.list_(pa.int64()), SchemaError, "'k' is of type"),
        ("a.json", b"{}\n", pa.map_(pa.string(), pa.int64()), SchemaError, "'k' is of type"),
        ("a.json", b'{"k":1}\n{"k":"x"}\n', None, SchemaError, r"a\.json.*'k' is a string"),
        ("conn.log", b"hello\n", None, OptionError, "#separator"),
        ("a.log", f"{ZEEK}{ROWS}{ZEEK}{ROWS}".replace("note", "remark", 1).encode(), None, FeedChangedError,
         "its fields"),
        ("a.parquet.gz", gzip.compress(b"PAR1", mtime=0), None, OptionError, "Parquet within gzip"),
    ],
)  # fmt: skip
def test_files_and_types_that_a_format_cannot_hold(folder, follow, name, text, kind, error, message):
    (folder / name).write_bytes(text)
    with pytest.raises(error, match=message):
        follow(None if kind is None else pa.schema([("k", kind)])).step()


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
class TestCompressed:
    TEXT = b"k,v\n" + b"".join(b"%d,%s\n" % (n, b"x" * (n % 50)) for n in range(3000)) + b"3000,last"

    def name(self, codec: str) -> str:
        return "a.csv." + {"gzip": "gz", "zstd": "zst"}[codec]

    def test_one_range(self, folder, follow, codec):
        (folder / self.name(codec)).write_bytes(compress(self.TEXT, codec))
        (folder / f"none-{self.name(codec)}").write_bytes(compress(b"", codec))
        (folder / f"header-{self.name(codec)}").write_bytes(compress(b"k,v\n", codec))
        feed = follow("k int64,v string")
        assert [row["k"] for row in feed.step()] == list(range(3001))
        assert [part.span for part in feed.last if part.span > 1] == [3002]
        assert feed.step() == []

    def test_by_its_first_bytes_and_in_members(self, folder, follow, codec):
        (folder / "a.csv").write_bytes(compress(self.TEXT[:5000], codec) + compress(self.TEXT[5000:], codec))
        assert [row["k"] for row in follow().step()] == list(range(3001))

    def test_malformed(self, folder, follow, codec):
        text = self.TEXT.replace(b"\n2500,", b"\nx,")
        (folder / self.name(codec)).write_bytes(compress(text, codec))
        feed = follow("k int64,v string")
        assert len(feed.step()) == 3000
        (bad,) = feed.malformed
        assert bad["line"] == 2502
        assert text[int(bad["place"].split(", byte ")[1]) :].startswith(b"x,")

    def test_not_before_it_is_complete_and_an_error_after_a_minute(self, folder, follow, codec):
        whole = compress(self.TEXT, codec)
        path = folder / self.name(codec)
        path.write_bytes(whole[:-9])
        feed = follow("k int64,v string")
        assert feed.step(1_000_000) == []
        assert feed.step(60_000_000) == []
        with pytest.raises(FeedChangedError, match=r"a\.csv.*not complete"):
            feed.step(61_000_000)
        batch = follow("k int64,v string")
        batch.connector.freeze(0)
        with pytest.raises(FeedChangedError, match="being written"):
            batch.step()
        path.write_bytes(whole)
        assert len(feed.step(62_000_000)) == 3001

    def test_a_limit_takes_whole_files(self, folder, follow, codec):
        for number in range(3):
            (folder / f"{number}{self.name(codec)}").write_bytes(compress(self.TEXT, codec))
        feed = follow("k int64,v string")
        assert [len(feed.step(limit=Limit(rows=7000))) for _ in range(3)] == [6002, 3001, 0]


class TestParquet:
    def write(self, path: Path, low: int, high: int) -> None:
        pq.write_table(pa.table({"k": range(low, high), "v": ["x"] * (high - low)}), path, row_group_size=10)

    def test_rows_by_groups(self, folder, follow):
        self.write(folder / "a.parquet", 0, 95)
        feed = follow(splitBytes="1")
        assert feed.step(limit=Limit(rows=25))
        assert len(feed.last) == 2
        assert [row["k"] for row in feed.rows + feed.drain(Limit(rows=25))][-1] == 94
        assert sorted(row["k"] for row in feed.rows) == list(range(95))
        self.write(folder / "_b", 95, 99)
        whole = (folder / "_b").read_bytes()
        (folder / "b.parquet").write_bytes(whole[:-20])
        assert feed.step() == []
        (folder / "b.parquet").write_bytes(whole)
        assert len(feed.step()) == 4

    @pytest.mark.parametrize("kind", ["csv.gz", "csv.zst", "parquet"])
    def test_changed_after_it_was_consumed(self, folder, follow, connect, kind):
        path = folder / f"a.{kind}"

        def write(low, high):
            if kind == "parquet":
                self.write(path, low, high)
            else:
                text = b"k,v\n" + b"".join(b"%d,x\n" % number for number in range(low, high))
                path.write_bytes(compress(text, {"gz": "gzip", "zst": "zstd"}[kind[4:]]))

        write(0, 20)
        feed = follow("k int64,v string", splitBytes="1")
        feed.step(limit=Limit(rows=10))
        write(0, 40)
        for connector in (feed.connector, connect("k int64,v string", splitBytes="1")):
            with pytest.raises(FeedChangedError, match="changed" if kind != "parquet" else None):
                connector.advance(feed.position, 0, Limit())
        with pytest.raises(FeedChangedError):
            read_range(feed.connector, feed.last[0], feed.malformed)

    def test_other_columns_and_types(self, folder, follow):
        self.write(folder / "a.parquet", 0, 5)
        with pytest.raises(FeedChangedError, match="lacks w"):
            follow("k int64,w string").step()
        with pytest.raises(FeedChangedError, match="'v'"):
            follow("k int64,v int64").step()
        assert follow("v string,k float64").step()[1] == {"v": "x", "k": 1.0}

    def test_types_of_spark(self, folder, connect):
        types = {
            "d": pa.dictionary(pa.int32(), pa.string()), "u": pa.uint32(), "b": pa.uint64(), "l": pa.large_string(),
            "t": pa.timestamp("ms", "Europe/Paris"), "n": pa.timestamp("ns"), "c": pa.time32("s"),
        }  # fmt: skip
        pq.write_table(pa.schema(list(types.items())).empty_table(), folder / "a.parquet")
        assert [str(field.type) for field in connect().schema()] == [
            "string", "int64", "decimal128(20, 0)", "string", "timestamp[us, tz=UTC]", "timestamp[us]", "string",
        ]  # fmt: skip

    def test_times_beyond_2262_as_spark_writes_them(self, folder, follow):
        far = [dt.datetime(year, 12, 31, 23, 59, 59, 999999) for year in (1000, 2500, 9999)]
        rows = pa.table({"k": [1, 2, 3], "t": pa.array(far, pa.timestamp("us"))})
        pq.write_table(rows, folder / "a.parquet", use_deprecated_int96_timestamps=True)
        assert "int96" in str(pq.ParquetFile(folder / "a.parquet").schema)
        assert [row["t"] for row in follow().step()] == far
