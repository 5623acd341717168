"""One real broker for all tests here; each test has topics of its own."""

import itertools

import pytest

from .messages import Sender, Source

_numbers = itertools.count()


@pytest.fixture
def topic(broker):
    """Makes topics with names that nobody else has."""
    return lambda partitions=1, **config: broker.create(f"topic-{next(_numbers)}", partitions, **config)


@pytest.fixture(scope="session")
def sender(broker):
    return Sender(broker.address)


@pytest.fixture
def source(broker):
    return lambda topic, schema=None, **options: Source(
        broker, topic, schema, **{name.replace("__", "."): value for name, value in options.items()}
    )
