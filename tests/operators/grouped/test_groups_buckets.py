import numpy as np
import pytest

from upstream.operators.grouped.groups import buckets_for


@pytest.mark.parametrize(
    ("rows", "bits", "expected"),
    [(0, 0, 0), (256, 0, 0), (257, 0, 1), (512, 1, 1), (513, 1, 2), (65_536, 0, 8), (1 << 20, 0, 10), (1 << 60, 0, 20),
     (256, 1, 1), (256, 2, 0), (0, 8, 0)],
)  # fmt: skip
def test_buckets_grow_with_the_rows_and_shrink_later(rows, bits, expected):
    assert buckets_for(np.array([rows]), np.array([bits])).tolist() == [expected]
