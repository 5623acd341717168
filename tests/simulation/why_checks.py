"""`why` in the simulation: for each key, present or not, it says what the record of the input and the batches says."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from upstream.workbench.key_answer import KeyAnswer
from upstream.workbench.why import explain_key

from . import running
from .inputs import Inputs, Row
from .scenario import Action, Scenario
from .stages import MismatchError

NEVER, TIMELESS, DROPPED = 99, 50, 60
SECONDS = 60.0


def scenario_of(seed: int) -> Scenario:
    """A scenario of the main job, whose source records how it reads."""
    from . import profiles

    profile = {4: "queue", 8: "two_writes", 9: "queue"}.get(seed % 10, "latest")
    return profiles.made(profile, 2 * seed)


def answers(seed: int) -> Counter[str]:
    """Run a scenario, ask about each key after each batch, and return how many answers were right, by verdict."""
    made: list[WhyRun] = []

    class Run(WhyRun):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    kept, running._Run = running._Run, Run
    try:
        running.run(scenario_of(seed))
    finally:
        running._Run = kept
    return made[0].right


def answers_of(seeds: Sequence[int], pool: ProcessPoolExecutor) -> dict[str, int]:
    """Run scenarios in the processes of a pool, and add up what :func:`answers` returns."""
    return sum(pool.map(answers, seeds), Counter[str]())


class WhyRun(running._Run):
    """A run that asks, and checks nothing else."""

    def __init__(self, scenario: Scenario, folder: Path, inputs: Inputs) -> None:
        self.right: Counter[str] = Counter()
        self._chance = random.Random(scenario.seed)
        if inputs.kind == "files":
            given = running.building.source_options
            running.building.source_options = lambda *each: {**given(*each), "where": "n > 0"}
            try:
                super().__init__(scenario, folder, inputs)
            finally:
                running.building.source_options = given
        else:
            super().__init__(scenario, folder, inputs)
        self.checks.after = self.ask
        self.checks.on_end = lambda: None

    def do(self, action: Action) -> None:
        super().do(action)
        if action[0] == "rows" and self.inputs.kind == "files" and self._chance.random() < 0.3:
            lines = [{"k": TIMELESS, "v": "x", "n": 1, "t": None}, {"k": DROPPED, "v": "x", "n": 0, "t": 1_000_000_000}]
            with open(Path(self.inputs.path) / self.inputs.name(action[1]), "a", encoding="utf-8") as file:
                file.write(json.dumps(self._chance.choice(lines)) + "\n")
        if action[0] == "rows" and self._chance.random() < 0.2:
            self.ask()

    def ask(self) -> None:
        """Ask about every key."""
        if not (self.sink.path / "_delta_log").exists():
            return
        read = self.checks.consumed()
        keys = {row.key for rows in self.inputs.rows.values() for row in rows} | {NEVER, TIMELESS, DROPPED}
        table = {row["k"]: row["v"] for row in self.sink.rows()}
        for key in sorted(keys):
            checkpoint = str(self.query.checkpoint)
            found = explain_key(str(self.sink.path), [f"k={key}"], checkpoint=checkpoint, seconds=SECONDS)
            wrong = self._wrong(key, found, read, table)
            if wrong:
                raise MismatchError(f"of key {key}, `why` says {wrong}\n{found}")
            self.right[found.verdict] += 1

    def _wrong(self, key: int, found: KeyAnswer, read: dict[str, list[Row]], table: dict[int, str]) -> str:
        came = [row for rows in read.values() for row in rows if row.key == key]
        unread = {
            (feed, self._line(feed, row))
            for feed, rows in self.inputs.rows.items()
            for row in rows[len(read[feed]) :]
            if row.key == key
        }
        if found.verdict == "present":
            return self._wrong_row(key, found, came, unread, table.get(key))
        if key in table:
            return f"{found.verdict}, and the table has its row"
        deletion = self._deletion(key)
        if self.inputs.kind == "kafka":
            expected = {"unknown"} if deletion is None else {"deleted"}
            expected |= {"deleted", "unknown"} if self._queued else set()
            if found.verdict not in expected:
                return f"{found.verdict}, and should say {expected}"
            if found.verdict != "deleted" or self._queued:
                return ""
            place = None if found.decided is None else (found.decided["feed"], found.decided["offset"])
            return "" if place == deletion else f"{found.decided} deleted it, and should say {deletion}"
        planned = self.query.pending
        if key == TIMELESS and self._dead():
            expected = {"dead letter"}
        elif key in (TIMELESS, DROPPED):
            expected = {"filtered", "unseen"}
        elif came and self._queued:
            expected = {"waiting"}
        elif unread:
            expected = {"unread", "in progress"} if planned else {"unread"}
        else:
            expected = {"unseen"}
        if key in (TIMELESS, DROPPED) and (found.verdict == "unseen") == self._written(key):
            return f"{found.verdict}, and a line of it was written: {self._written(key)}"
        return "" if found.verdict in expected else f"{found.verdict}, and should say {expected}"

    def _wrong_row(
        self, key: int, found: KeyAnswer, came: list[Row], unread: set[tuple[str, int]], value: str | None
    ) -> str:
        if found.row is None or found.row["v"] != value:
            return f"the row {found.row}, and the table has {value}"
        name = self.inputs.name(int(str(value).partition("-")[0]))
        row = next(each for each in self.inputs.rows[name] if each.value == value)
        decided = found.decided
        if decided is None:
            return f"no place, because {found.unknown}"
        place = (decided["feed"].rsplit("/", 1)[-1], decided.get("line"))
        wanted: tuple[str, Any] = (name, self._line(name, row))
        if self.inputs.kind == "kafka":
            place, wanted = (f"{decided['topic']}/{decided['partition']}", decided["offset"]), (name, row.place)
        if place != wanted:
            return f"{place} decided, and should say {wanted}"
        batch = self._batch_of(key, str(value))
        if decided["batch"] != batch:
            return f"batch {decided['batch']} read it, and it was {batch}"
        if not self._queued and (found.commit is None or found.commit["batch_id"] != batch):
            return f"the commit {found.commit}, and it was of batch {batch}"
        total = sum(each.to_us - each.from_us for each in found.way)
        if found.way and found.commit is not None and total != found.way[-1].to_us - found.way[0].from_us:
            return f"a way that does not add up: {found.way}"
        if self.inputs.kind == "kafka":
            return "" if found.superseded is None else "a count of what is in a broker"
        if (found.superseded is None) != self._queued:
            return f"{found.superseded} superseded updates, because {found.unknown}"
        if found.superseded is not None and found.commit is not None:
            left = self._rows(key, found.commit["batch_id"], left=True)
            covered = sum(each["_upstream"]["covered"] for each in left)
            first = min(each["_upstream"]["first_arrival"] for each in left).timestamp()
            if (found.superseded, found.first_arrival_us) != (covered - 1, round(first * 1e6)):
                return (
                    f"{found.superseded} superseded since {found.first_arrival_us}, and it was {covered} since {first}"
                )
        waiting = {(each["place"]["path"].rsplit("/", 1)[-1], each["place"]["line"]) for each in found.coming}
        return "" if waiting == unread else f"{waiting} wait, and should be {unread}"

    def _deletion(self, key: int) -> tuple[str, int] | None:
        """Return the feed and the offset of the row that took the key's row away, or of the newest deletion."""
        best: dict[str, Any] | None = None
        removed: dict[str, Any] | None = None
        for rows in self._writes(key):
            had = best is not None and not best["_upstream"]["deleted"]
            best = max(
                [*rows, *([best] if best else [])], key=lambda row: (row["t"], row["_upstream"]["seq"]), default=None
            )
            if best is not None and had and best["_upstream"]["deleted"]:
                removed = best
        if best is None or not best["_upstream"]["deleted"]:
            return None
        system = (removed or best)["_upstream"]
        earlier = [self._rows(None, number) for number in range(self.query.record.commits)]
        mine = [row for rows in earlier for row in rows if row["_upstream"]["source"] == system["source"]]
        seqs = sorted(row["_upstream"]["seq"] for row in mine)
        return system["source"], self.inputs.rows[system["source"]][seqs.index(system["seq"])].place

    def _writes(self, key: int) -> Iterator[list[dict[str, Any]]]:
        """Yield the key's rows of each write to the table."""
        for number in range(self.query.record.commits):
            rows = self._rows(key, number)
            if self.config["sink"]["kind"] == "two writes":
                for gone in (False, True):
                    yield [row for row in rows if row["_upstream"]["deleted"] == gone]
            else:
                yield rows

    def _rows(self, key: int | None, number: int, *, left: bool = False) -> list[dict[str, Any]]:
        """Return what the source gave of a key, or of all, in a batch; or what `left` the last operator."""
        record = self.query.record
        rows = [row for table in (record.left if left else record.read)[number] for row in table.to_pylist()]
        return [row for row in rows if not row["_upstream"]["punctuation"] and key in (None, row["k"])]

    def _batch_of(self, key: int, value: str) -> int:
        """Return the batch that read a value."""
        for number in range(self.query.record.commits):
            rows = self._rows(key, number)
            if any(row["v"] == value for row in rows):
                return number
        raise AssertionError(value)

    def _line(self, name: str, row: Row) -> int:
        if self.inputs.kind == "kafka":
            return row.place
        lines = (Path(self.inputs.path) / name).read_text().splitlines()
        return 1 + next(at for at, line in enumerate(lines) if f'"v": "{row.value}"' in line)

    def _written(self, key: int) -> bool:
        return any(f'"k": {key},' in path.read_text() for path in Path(self.inputs.path).glob("*.jsonl"))

    def _dead(self) -> bool:
        place = self.query.checkpoint / "dead_letters"
        return (place / "_delta_log").exists() and DeltaTable(str(place)).count() > 0

    @property
    def _queued(self) -> bool:
        return bool(self.config["stages"])
