"""A consumer that has waited for work while brokers restarted, and then gets nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from upstream.datasource.connectors.contract import Limit
from upstream.datasource.connectors.kafka import client
from upstream.datasource.connectors.kafka import task as consuming

from .messages import Sender, Source


def test_another_consumer_takes_its_place_and_goes_on_where_it_was(
    topic: Callable[..., str], source: Callable[..., Source], sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Deaf(confluent_kafka.Consumer):
        """The real client. The first two give two messages, and then nothing."""

        def __init__(self, settings: dict[str, Any]) -> None:
            super().__init__(settings)
            self.given = 0
            made.append(self)

        def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
            if self in made[:2]:
                num_messages = min(num_messages, 2 - self.given)
                if num_messages == 0:
                    return []
            got = super().consume(num_messages, timeout)
            self.given += len(got)
            return got

    monkeypatch.setattr(confluent_kafka, "Consumer", Deaf)
    monkeypatch.setattr(consuming, "_SILENT_S", 0.5)
    monkeypatch.setattr(client, "_idle", {})
    name = topic()
    sender.send(name, *(b'{"n": %d}' % number for number in range(10)))
    reader = source(name, "n BIGINT")
    assert [row["n"] for row in reader.rows(reader.step(Limit(rows=6)))] == list(range(6))
    assert [each.given for each in made[:2]] == [2, 2]
    assert [row["n"] for row in reader.rows(reader.step())] == list(range(6, 10))
