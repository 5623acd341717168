"""What comes in, written where the connector reads it, and recorded where the oracle reads it."""

import json
from pathlib import Path
from typing import NamedTuple

from .broker import BROKERS, Broker, Log

TOPIC = "topic"


class Row(NamedTuple):
    """A row that came: its time in µs, its place in the broker's log or its number in a file, its leader's epoch."""

    key: int
    time: int
    value: str
    deleted: bool
    place: int
    epoch: int = 0


class Inputs:
    """The feeds of a scenario; of rows, what was lost before anybody read it is left out."""

    def __init__(self, folder: Path, kind: str, *, stamped: bool = False) -> None:
        self.kind = kind
        self.stamped = stamped
        self.rows: dict[str, list[Row]] = {}
        self.totals: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._folder = folder / "in"
        self.broker = Broker()
        self.address = str(folder)
        if kind == "kafka":
            BROKERS[self.address] = self.broker
            self.broker.topics[TOPIC] = ("first", {})
            self._log(0)
        else:
            self._folder.mkdir()

    @property
    def path(self) -> str:
        return str(self._folder)

    def close(self) -> None:
        BROKERS.pop(self.address, None)

    def add(self, feed: int, rows: list[list[int]]) -> None:
        """Rows arrive."""
        name = self.name(feed)
        known = self.rows.setdefault(name, [])
        lines: list[str] = []
        for key, time_ms, deleted in rows:
            time = time_ms * 1000
            number = self._numbers[name] = self._numbers.get(name, -1) + 1
            value = f"{feed}-{number}"
            text = json.dumps({"k": key, "v": value, "n": 1} | ({} if self.stamped else {"t": time}))
            if self.kind == "kafka":
                gone = bool(deleted)
                body = None if gone else text.encode()
                log = self._log(feed)
                place = log.append(TOPIC, feed, str(key).encode(), body, time_ms)
                known.append(Row(key, time, value, gone, place, log.epoch))
            else:
                known.append(Row(key, time, value, False, number))
                lines.append(text)
        if self.kind != "kafka":
            with open(self._folder / f"{feed}.jsonl", "a", encoding="utf-8") as file:
                file.write("".join(line + "\n" for line in lines))

    def partitions(self, count: int) -> None:
        """Make them, without messages."""
        for number in range(count):
            self._log(number)

    def cut(self, feed: int, count: int, read: int) -> None:
        """Lose the tail of a partition's log. Its rows, except for the feed's first `read`, count as never sent."""
        log = self.broker.log(TOPIC, feed)
        if log is None or not log.messages:
            return
        lost = log.cut(max(log.end - count, log.begin))
        gone = {(message.offset(), message.leader_epoch()) for message in lost}
        known = self.rows[self.name(feed)]
        known[read:] = [row for row in known[read:] if (row.place, row.epoch) not in gone]

    def name(self, feed: int) -> str:
        return f"{TOPIC}/{feed}" if self.kind == "kafka" else f"{feed}.jsonl"

    @staticmethod
    def known_as(source: str) -> str:
        """The feed that a row's `source` means."""
        return source if source.startswith(TOPIC + "/") else source.rsplit("/", 1)[-1]

    def _log(self, feed: int) -> Log:
        _, logs = self.broker.topics[TOPIC]
        return logs.setdefault(feed, Log())
