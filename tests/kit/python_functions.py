"""Functions in Python that tests declare."""

import os
import signal
import sys

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


def exits(x: pa.Array) -> pa.Array:
    sys.exit(3)


def interrupts(x: pa.Array) -> pa.Array:
    raise KeyboardInterrupt


def dies(x: pa.Array) -> pa.Array:
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def no_text(x: pa.Array) -> pa.Array:
    return pa.array([b"\xff"] * len(x)).view(pa.string())


class Functions:
    same = staticmethod(lambda x: x)


NOT_ONE = 3
