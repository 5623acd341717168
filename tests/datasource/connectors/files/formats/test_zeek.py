"""Zeek's times, exact to the microsecond, however far."""

import pyarrow as pa
import pytest
from kit.malformed_rows import Reported

from upstream.datasource.connectors.files.formats.lines import parse_lines
from upstream.datasource.connectors.files.formats.zeek import ZeekFormat

HEADER = b"#separator \\x09\n#fields\tts\tall\n#types\ttime\tset[time]\n"
US = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1480028400.123456789", 1_480_028_400_123_456), ("-0.0000015", -2),
        ("9223372036.854776", 9_223_372_036_854_776),
        ("-9223372037", -9_223_372_037_000_000), ("253402300799.999999", 253_402_300_799_999_999), ("1e13", None),
        ("1e25", None), ("1e400", None),
    ],
)  # fmt: skip
def test_a_time_is_that_instant_or_no_row(text, micros):
    form, reported = ZeekFormat(), Reported()
    head = form.head(HEADER, complete=True)
    block = f"0\t0\n{text}\t{text}\n".encode()
    parser = form.parser(head, form.infer(block, head), None)
    pieces, _ = parse_lines(parser, block, 0, reported, lambda _: ("", None))
    rows = [[ts, *times] for table, _ in pieces for ts, times in zip(*table.columns, strict=True)]
    assert [value.value for row in rows for value in row] == [0, 0, *([] if micros is None else [micros] * 2)]
    assert len(reported) == (micros is None)
