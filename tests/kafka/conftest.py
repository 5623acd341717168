"""One real broker for all tests here; each test has topics of its own."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .messages import Sender, Source

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="session")
def kafka_tool() -> ModuleType:
    """The module `tools/kafka.py`."""
    path = Path(__file__).resolve().parents[2] / "tools" / "kafka.py"
    spec = importlib.util.spec_from_file_location("the_kafka_tool", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def broker(kafka_tool: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker for the whole session; a test that kills it starts it again."""
    made = kafka_tool.Broker(tmp_path_factory.mktemp("kafka"))
    with made:
        yield made


_numbers = itertools.count()


@pytest.fixture
def topic(broker: Any) -> Callable[..., str]:
    """Makes topics with names that nobody else has."""
    return lambda partitions=1, **config: broker.create(f"topic-{next(_numbers)}", partitions, **config)


@pytest.fixture(scope="session")
def sender(broker: Any) -> Sender:
    return Sender(broker.address)


@pytest.fixture
def source(broker: Any) -> Callable[..., Source]:
    return lambda topic, schema=None, **options: Source(
        broker, topic, schema, **{name.replace("__", "."): value for name, value in options.items()}
    )
