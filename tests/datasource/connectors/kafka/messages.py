"""Messages to a broker, and the connector alone, read step by step."""

from typing import Any

from confluent_kafka import Producer
from kit.malformed_rows import Reported

from upstream.datasource.connectors.contract import Advance, Limit
from upstream.datasource.registry import CONNECTORS, parse_source_options
from upstream.expressions.bind import arrow_schema


class Sender:
    """A producer that waits until the broker has what it was given."""

    def __init__(self, address: str, **config: Any) -> None:
        self.producer = Producer(
            {"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 200, **config}
        )

    def send(self, topic: str, *values: bytes | None, partition: int = 0, flush: bool = True, **more: Any) -> None:
        failed: list[Any] = []
        for value in values:
            self.producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: error and failed.append(error), **more
            )
        if flush:
            assert self.producer.flush(60) == 0
            assert not failed


class Source:
    """The connector alone, read step by step."""

    def __init__(self, broker: Any, topic: str, schema: str | None = None, **options: str) -> None:
        given = {"connector": "kafka", "kafka.bootstrap.servers": broker.address, "subscribe": topic}
        given.update(options)
        if given["subscribe"] == "":
            del given["subscribe"]
        self.common, own = parse_source_options(given)
        self.connector: Any = CONNECTORS["kafka"].make(own, self.common)
        if schema is not None:
            self.connector.fix_schema(arrow_schema(schema))
        self.position: Any = None
        self.reported = Reported()

    def step(self, limit: Limit | None = None, now_us: int = 1) -> Advance:
        taken = self.connector.advance(self.position, now_us, limit or Limit())
        self.position = taken.position
        return taken

    def rows(self, taken: Advance | None = None) -> list[dict[str, Any]]:
        """The rows of a step, with feed, index and whether they are tombstones."""
        found: list[dict[str, Any]] = []
        for part in (taken or self.step()).ranges:
            for chunk in self.connector.read(part, None, self.reported):
                index = chunk.index
                deleted = chunk.deleted if chunk.deleted is not None else [False] * chunk.rows.num_rows
                for row, at, gone in zip(chunk.rows.to_pylist(), index, deleted, strict=True):  # type: ignore[arg-type]
                    found.append({**row, "feed": part.feed, "index": int(at), **({"gone": True} if gone else {})})
        return found
