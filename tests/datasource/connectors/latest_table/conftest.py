"""A table that the sink's own classes write, and its follower."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.sink import Sink

from .following import Follower, some


@pytest.fixture
def make_first(tmp_path: Path) -> Callable[..., Sink]:
    def make(folder: Path = tmp_path / "first", **options: str) -> Sink:
        chosen = {"key": "k", "time": "t", "buckets": "2"} | options
        return Sink(folder, options={name: value for name, value in chosen.items() if value})

    return make


@pytest.fixture
def first(make_first: Callable[..., Sink]) -> Sink:
    return make_first()


@pytest.fixture
def follow(first: Sink) -> Callable[..., Follower]:
    return lambda **options: Follower(first.path, **options)


@pytest.fixture
def begun(first: Sink, follow: Callable[..., Follower]) -> Callable[..., Follower]:
    """Makes a follower that has read a table of the first rows."""

    def make(*rows: tuple[Any, ...], **options: str) -> Follower:
        some(first, 0, *(rows or ((1, 10, "a"),)))
        follower = follow(**options)
        follower.rows()
        return follower

    return make
