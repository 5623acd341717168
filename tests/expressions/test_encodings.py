from kit.failures import fails, unfit

from upstream.expressions.kinds import BINARY, BYTE, DOUBLE, INT, LONG, TEXT

from .values import evaluate


def test_digits_of_numbers_and_bytes():
    assert evaluate("hex", ([-1, 0, 255, None], LONG)) == ["F" * 16, "0", "FF", None]
    assert evaluate("hex", ([-1], BYTE)) == ["F" * 16]
    assert evaluate("hex", ([1.5], DOUBLE)) == ["1"]
    assert evaluate("hex", (["é"], TEXT)) == ["C3A9"]
    assert evaluate("hex", ([b"\x00\xff"], BINARY)) == ["00FF"]
    assert evaluate("bin", ([-1, 5, 0, None], LONG)) == ["1" * 64, "101", "0", None]
    given = ["abc", "zz", "", "00FF", "ab\n", None], TEXT
    assert evaluate("unhex", given) == [b"\n\xbc", None, b"", b"\x00\xff", None, None]


def test_base64_and_parts_of_bytes():
    assert evaluate("base64", ([b"abc", b"", b"\xff", None], BINARY)) == ["YWJj", "", "/w==", None]
    assert evaluate("unbase64", (["YWJj", "", "/w==", None], TEXT)) == [b"abc", b"", b"\xff", None]
    fails("base 64", evaluate, "unbase64", (["YWJ"], TEXT))
    given = [b"\x01\x02\x03", b"", None], BINARY
    assert evaluate("length", given) == [3, 0, None]
    assert evaluate("substr", given, constants=[([2], INT), ([1], INT)]) == [b"\x02", b"", None]
    assert evaluate("substr", given, constants=[([-2], INT)]) == [b"\x02\x03", b"", None]
    assert evaluate("left", given, constants=[([2], INT)]) == [b"\x01\x02", b"", None]
    assert evaluate("concat", given, ([b"\xff"] * 3, BINARY)) == [b"\x01\x02\x03\xff", b"\xff", None]


def test_characters_and_their_codes():
    assert evaluate("ascii", (["", "😀a", "A", None], TEXT)) == [0, 128512, 65, None]
    assert evaluate("chr", ([0, 65, 321, -1, 200, None], LONG)) == ["\0", "A", "A", "", "È", None]
    assert evaluate("encode", (["é"], TEXT), constants=[(["utf-8"], TEXT)]) == ["é".encode()]
    assert evaluate("decode", (["é".encode()], BINARY), constants=[(["UTF-8"], TEXT)]) == ["é"]
    unfit("UTF-8", evaluate, "encode", (["é"], TEXT), constants=[(["UTF-16"], TEXT)])
