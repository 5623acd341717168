"""A table that the sink's own classes write, and its follower."""

import pytest
from kit.sink import Sink

from .following import Follower, some


@pytest.fixture
def make_first(tmp_path):
    def make(folder=tmp_path / "first", **options):
        chosen = {"key": "k", "eventTime": "t", "buckets": "2"} | options
        return Sink(folder, options={name: value for name, value in chosen.items() if value})

    return make


@pytest.fixture
def first(make_first):
    return make_first()


@pytest.fixture
def follow(first):
    return lambda **options: Follower(first.path, **options)


@pytest.fixture
def begun(first, follow):
    """Makes a follower that has read a table of the first rows."""

    def make(*rows, **options):
        some(first, 0, *(rows or ((1, 10, "a"),)))
        follower = follow(**options)
        follower.rows()
        return follower

    return make
