"""Functions in Python that tests declare."""

import pyarrow as pa
import pyarrow.compute as pc

ROWS: list[int] = []
"""The rows of each call of :func:`doubled`."""


def doubled(x: pa.Array) -> pa.ChunkedArray:
    ROWS.append(len(x))
    return pa.chunked_array([pc.multiply(x, 2)])


def labelled(text: pa.Array, n: pa.Array) -> list[str]:
    return [f"{one}{two}" for one, two in zip(text.to_pylist(), n.to_pylist(), strict=True)]


def broken(x: pa.Array) -> pa.Array:
    raise OSError(f"no model for {len(x)} rows")


def shortened(x: pa.Array) -> pa.Array:
    return x[1:]


class Functions:
    same = staticmethod(lambda x: x)


NOT_ONE = 3
