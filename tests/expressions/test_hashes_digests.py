import hashlib
import zlib

from hypothesis import given
from hypothesis import strategies as st

from upstream.expressions.kinds import BINARY, INT, TEXT

from .values import evaluate

_LENGTHS = st.one_of(st.integers(0, 20), st.sampled_from([55, 56, 57, 63, 64, 65, 111, 112, 113, 127, 128, 129, 300]))
_BYTES = st.lists(
    st.none() | _LENGTHS.flatmap(lambda size: st.binary(min_size=size, max_size=size)), min_size=1, max_size=6
)


def _digests(standard: str, values: list[bytes | None]) -> list[str | None]:
    return [None if each is None else hashlib.new(standard, each).hexdigest() for each in values]


@given(_BYTES)
def test_digests_and_checksums_are_those_of_the_standards(values):
    for name, standard in (("md5", "md5"), ("sha1", "sha1"), ("sha", "sha1")):
        assert evaluate(name, (values, BINARY)) == _digests(standard, values)
    for bits in (0, 224, 256, 384, 512):
        found = evaluate("sha2", (values, BINARY), constants=[([bits], INT)])
        assert found == _digests(f"sha{bits or 256}", values)
    assert evaluate("crc32", (values, BINARY)) == [None if each is None else zlib.crc32(each) for each in values]


def test_text_is_taken_as_its_bytes_and_other_sizes_are_null():
    assert evaluate("md5", (["é", None], TEXT)) == [*_digests("md5", ["é".encode()]), None]
    assert evaluate("sha2", (["é"], TEXT), constants=[([7], INT)]) == [None]
