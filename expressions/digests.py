"""Digests of bytes as text (MD5, SHA-1, SHA-2), and CRC-32."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import polars as pl

from .coercion import Rule, Signature
from .columnar import Builder, Kernel, on_series
from .kinds import BINARY, INT, LONG, TEXT


def _digest(name: str, value: bytes) -> str:
    return getattr(hashlib, name)(value, usedforsecurity=False).hexdigest()


def _of(function: Callable[[bytes], Any], value: pl.Expr, dtype: type[pl.DataType]) -> pl.Expr:
    """Return a function of bytes as an expression. OpenSSL's loops take longer than the call of Python per value."""

    def run(values: pl.Series) -> pl.Series:
        return pl.Series([None if each is None else function(each) for each in values.to_list()], dtype=dtype)

    return on_series(run, value, dtype=dtype)


def _hash(name: str) -> Kernel:
    return lambda _, value: _of(partial(_digest, name), value, pl.String)


def _sha2(build: Builder, value: pl.Expr, _: pl.Expr) -> pl.Expr:
    bits = build.constant(1, "the number of bits")
    if bits not in (0, 224, 256, 384, 512):  # null, as in Spark
        return pl.when(pl.lit(value=False)).then(value).cast(pl.Binary).bin.encode("hex")
    return _of(partial(_digest, f"sha{bits or 256}"), value, pl.String)


DIGEST_RULES: Mapping[str, Rule] = {
    "md5": Signature(TEXT, (BINARY,)),
    **dict.fromkeys(("sha", "sha1"), Signature(TEXT, (BINARY,), name="sha1")),
    "sha2": Signature(TEXT, (BINARY, INT)),
    "crc32": Signature(LONG, (BINARY,)),
}

DIGESTS: Mapping[str, Kernel] = {
    "md5": _hash("md5"),
    "sha1": _hash("sha1"),
    "sha2": _sha2,
    "crc32": lambda _, value: _of(zlib.crc32, value, pl.Int64),
}
