"""What must hold after each batch: what was read, the promises, the operators' results, the table, the folder."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from upstream.core.feedback.checkpoint_layout import operator_folder, queue_folder
from upstream.core.feedback.reports import JoinReport, QueueReport, read_reports
from upstream.delta_format.deletion_vectors import COPIES, VECTORS
from upstream.sink.figures.summary import read_summaries

from . import oracle
from .inputs import Inputs, Row
from .join_checks import check_join, check_shed, newest_pairs
from .join_stages import Names
from .query import Query
from .sinks import Names as FileNames
from .sinks import files_in
from .stages import MismatchError

SYSTEM = "_upstream"
_EVER = 1 << 62
Taken = dict[str, list[Row]]
Results = dict[tuple[int, int], tuple[int, int]]


class Checks:
    """The checks of one run."""

    def __init__(self, config: dict[str, Any], inputs: Inputs, query: Query, sink: Any, tables: list[Names]) -> None:
        self.config, self.inputs, self.query, self.sink, self.tables = config, inputs, query, sink, tables
        self.names = FileNames()
        self._ops = [each["op"] for each in config["stages"]]
        self._stamped = config["progress"] == "arrival"

    def after(self) -> None:
        """After a batch that is done."""
        read = self.consumed()
        self.promises(read)
        self.operators(read)
        if self.config["sink"]["kind"] != "none":
            self.table(read)
            self.folder()
            self.account()

    def on_end(self) -> None:
        """When nothing is left to do."""
        read = self.consumed()
        left = {feed: rows[len(read[feed]) :] for feed, rows in self.inputs.rows.items()}
        if any(left.values()):
            raise MismatchError(f"never read: {left}")
        self.operators(read, lag=0)
        if self.config["honest"]:
            self.leaving()

    def consumed(self, upto: int | None = None) -> Taken:
        """The rows that were read up to now, as the record of the input has them; what was read must be the next of
        each feed's.
        """
        taken: Taken = {feed: [] for feed in self.inputs.rows}
        for number in range(self.query.record.commits if upto is None else upto):
            found: dict[str, list[tuple[int, Any, int, int]]] = {}
            for row in _rows(self.query.record.read[number]):
                feed = self.inputs.known_as(row[SYSTEM]["source"])
                time = 0 if self._stamped else row["t"]
                found.setdefault(feed, []).append((row[SYSTEM]["seq"], row["v"], row["k"], time))
            for feed, rows in found.items():
                at = len(taken[feed])
                expected = self.inputs.rows[feed][at : at + len(rows)]
                got = [each[1:] for each in sorted(rows)]
                wanted = [
                    (None if row.deleted else row.value, row.key, 0 if self._stamped else row.time) for row in expected
                ]
                if got != wanted:
                    raise MismatchError(f"batch {number} read {got} of {feed}, and next there was {wanted}")
                taken[feed] += expected
        return taken

    def promises(self, read: Taken) -> None:
        """The invariant of progress: the low-watermark that the source gives is no later than any row that it has not
        given.
        """
        number = self.query.record.commits - 1
        marks = dict(self.query.record.promised.get(number - 1, {}))
        for source, bound in _marks(self.query.record.read[number], "t"):
            marks[source] = max(bound, marks.get(source, bound))
        self.query.record.promised[number] = marks
        if not self.config["honest"]:
            return
        low = min(marks.values(), default=-_EVER)
        if self._stamped:
            return
        for feed, rows in self.inputs.rows.items():
            broken = [row for row in rows[len(read[feed]) :] if row.time < low]
            if broken:
                raise MismatchError(f"all before {low} was promised by {marks}, and {broken[:3]} was still to come")

    def leaving(self) -> None:
        """What leaves keeps what was promised with what left before."""
        marks: dict[str, int] = {}
        for number in range(self.query.record.commits):
            tables = self.query.record.left[number]
            name = _time_of(tables[0]) if tables else "t"
            low = min(marks.values(), default=-_EVER)
            for table in tables:
                rows = table.filter(pc.invert(pc.struct_field(table.column(SYSTEM), "punctuation")))
                least = pc.min(pc.cast(rows.column(name), pa.int64())).as_py()
                if least is not None and least < low:
                    raise MismatchError(f"batch {number}: a row of {least} left after {marks} had been promised")
            for source, bound in _marks(tables, name):
                marks[source] = max(bound, marks.get(source, bound))

    def operators(self, read: Taken, lag: int = 1) -> None:
        """What each operator has given, from the rows that came."""
        if self.config["honest"] and (self.query.checkpoint / "dead_letters").exists():
            raise MismatchError("rows were taken for late, and none was")
        for number, stage in enumerate(self.config["stages"]):
            if stage["op"] != "newest join":  # of which the table is what counts
                getattr(self, stage["op"].replace(" ", "_"))(number, stage, read, lag)

    def given(self) -> Iterator[dict[str, Any]]:
        """All rows that left the last operator."""
        return (row for batch in range(self.query.record.commits) for row in _rows(self.query.record.left[batch]))

    def low_watermark(self, read: Taken, lag: int) -> int | None:
        """How far the source must have come at least. Where tasks look at rows, it follows a batch later."""
        if self._stamped or not self.config["honest"]:
            return None
        seen = read
        if self.config["source"] == "kafka" and lag:
            seen = self.consumed(self.query.record.commits - lag)
        if any(rows and not seen[feed] for feed, rows in self.inputs.rows.items()):
            return None
        ends = {self.inputs.name(feed) for feed in self.config.get("ends", ())}
        known = {self.inputs.name(feed) for feed in range(self.config["feeds"])} if ends else set()
        if any(not seen.get(feed) and (feed not in ends or self.inputs.totals.get(feed)) for feed in known):
            return None  # it may still begin, with any time
        ended = {feed for feed in ends if len(seen.get(feed, [])) == self.inputs.totals.get(feed, 0)}
        return oracle.low_watermark({**seen}, ended, self.config)

    def windows(self, number: int, stage: dict[str, Any], read: Taken, lag: int) -> None:
        """Windows that closed are right; those that are due have closed, once each."""
        given = self._all(number)
        value = "rows" if number == 0 else "windows"
        got: Results = {}
        for row in given:
            place = row["k"], _micros(row["window_end"])
            if place in got and stage["emit"] == "all":
                raise MismatchError(f"window {place} closed twice")
            got[place] = row[value], row["total"]
        came, low = self._came(number, read, lag)
        expected = oracle.windows(came, stage["size"] * 1000, stage["slide"] * 1000)
        wrong = {place: (found, expected.get(place)) for place, found in got.items() if expected.get(place) != found}
        if wrong and self.config["honest"]:
            raise MismatchError(f"windows of operator {number} (key, end) are, and should be: {wrong}")
        if low is None or stage["emit"] != "all":
            return
        due = {place for place in expected if place[1] <= low} - got.keys()
        if due:
            raise MismatchError(f"windows of operator {number} that are due at {low} have not closed: {sorted(due)}")

    def _came(self, number: int, read: Taken, lag: int) -> tuple[list[tuple[int, int, int]], int | None]:
        """What came to a window operator, and how far it must have come: from the record of the input."""
        low = self.low_watermark(read, lag)
        if self._stamped:
            rows = [row for batch in range(self.query.record.commits) for row in _rows(self.query.record.read[batch])]
            return [(row["k"], _micros(row["t"]), row["n"]) for row in rows], low
        came = [(row.key, row.time, 1) for rows in self.inputs.rows.values() for row in rows]
        if number == 0:
            return came, low
        inner = self.config["stages"][0]
        size, slide = inner["size"] * 1000, inner["slide"] * 1000
        ends = oracle.windows(came, size, slide)
        inside = int(any("window_time" in row for row in self._all(0)))
        # The next inner window to close is the first that ends after the watermark.
        after = None if low is None else low if low >= _EVER else (low // slide + 1) * slide - inside
        return [(key, end - inside, rows) for (key, end), (rows, _) in ends.items()], after

    def _given(self, number: int, batch: int) -> list[pa.Table]:
        return [table for _, table in self.query.record.by_shard.get((number, batch), [])]

    def _all(self, number: int) -> list[dict[str, Any]]:
        """All rows that an operator has given."""
        return [row for batch in range(self.query.record.commits) for row in _rows(self._given(number, batch))]

    def ordered(self, number: int, _: dict[str, Any], read: Taken, lag: int) -> None:
        """Rows leave in order, all that may, and each once."""
        last: dict[int, int] = {}
        left: list[str] = []
        for batch in range(self.query.record.commits):
            for shard, table in self.query.record.by_shard.get((number, batch), []):
                for row in _rows([table]):
                    if row["t"] < last.get(shard, row["t"]):
                        raise MismatchError(f"shard {shard} gave {row['t']} after {last[shard]}")
                    last[shard] = row["t"]
                    left.append(row["v"])
        rows = {row.value: row for rows in read.values() for row in rows}
        if len(left) != len(set(left)) or not set(left) <= rows.keys():
            raise MismatchError(f"rows left twice, or came from nowhere: {left}")
        low = self.low_watermark(read, lag)
        due = {value for value, row in rows.items() if low is not None and row.time < low} - set(left)
        if due:
            raise MismatchError(f"rows before {low} are held: {sorted(due)}")

    def join(self, number: int, stage: dict[str, Any], read: Taken, lag: int) -> None:
        """Pairs, and rows without a partner."""
        given = self._all(number)
        came, ever = ([row for rows in each.values() for row in rows] for each in (read, self.inputs.rows))
        low = self.low_watermark(read, lag)
        check_join(given, came, ever, low, stage, honest=self.config["honest"])
        reports = read_reports(operator_folder(str(self.query.checkpoint), "joins", number), JoinReport)
        if sum(each.late_results for each in reports):
            raise MismatchError("results of a join were taken for late, and none was")
        if stage.get("limit") and stage["how"] == "full":
            check_shed(given, came, reports)

    def table_join(self, number: int, stage: dict[str, Any], *_: Any) -> None:
        """Each row has the name that its key had in the version with which its batch was planned."""
        batch = self.query.record.commits - 1
        if batch < 0:  # a scenario in which no row comes
            return
        (offset,) = self.query.record.versions[batch]
        names, how = self.tables[offset["version"]], stage["how"]
        known = [(row["v"], names.get(str(row["k"]))) for row in _rows(self.query.record.read[batch])]
        if how in ("semi", "anti"):
            wanted = [(value, None) for value, name in known if (name is None) == (how == "anti")]
        else:
            wanted = [each for each in known if how == "left" or each[1] is not None]
        got = [(row["v"], row.get("name")) for row in _rows(self._given(number, batch))]
        if sorted(got, key=str) != sorted(wanted, key=str):
            raise MismatchError(f"{how} join with the table {names}: {got}, and should be {wanted}")

    def queue(self, number: int, _: dict[str, Any], read: Taken, lag: int) -> None:
        """The counters add up: what came is given, superseded or waits."""
        reports = read_reports(queue_folder(str(self.query.checkpoint)), QueueReport)
        kept = self.query.record.queued
        for report in reports:
            if report.batch_id == self.query.record.commits - 1:
                gone = report.applied + report.superseded + report.shed
                kept[number, report.shard, report.batch_id] = gone, report.waiting
        last = {(op, shard): batch for op, shard, batch in sorted(kept) if batch < self.query.record.commits}
        gone = sum(each for (_, _, batch), (each, _) in kept.items() if batch < self.query.record.commits)
        waiting = sum(kept[op, shard, batch][1] for (op, shard), batch in last.items())
        came = sum(map(len, read.values()))
        if came != gone + waiting:
            raise MismatchError(f"{came} rows came into the queue, {gone} are gone, {waiting} wait")

    def table(self, read: Taken) -> None:
        """The table is what the oracle says."""
        rows = self.sink.rows()
        if "newest join" in self._ops:
            pairs = {row["k"]: (row["t"], row["v"], row["v_right"]) for row in rows}
            wanted = newest_pairs([row for each in read.values() for row in each])
            if pairs != wanted or len(rows) != len(pairs):
                raise MismatchError(f"the table has the pairs {pairs}, and should have {wanted}")
            return
        got = {row["k"]: (row["t"], row["v"]) for row in rows}
        if "queue" in self._ops and self.waits:
            # Each key's row is one that came, and not older than before; see `on_end` for the rest.
            known = {(row.key, row.time, row.value) for each in read.values() for row in each}
            if any((key, *row) not in known for key, row in got.items()):
                raise MismatchError(f"the table has rows that nobody sent: {got}")
            return
        came: Iterable[Row] = (row for rows in read.values() for row in rows)
        if "ordered" in self._ops:
            left = {row["v"] for row in self.given()}
            came = [row for row in came if row.value in left]
        expected = oracle.newest(came)
        if got != expected or len(rows) != len(got):
            raise MismatchError(
                f"after batch {self.query.record.commits - 1} the table has {got}, and should have {expected}"
            )

    @property
    def waits(self) -> bool:
        return any(stage.waits for stage in self.query.stages)

    def account(self) -> None:
        """What the source has counted is what the commits took in, after each of them; a queue still holds rows."""
        if self._ops or self.config["sink"]["kind"] != "table":
            return
        taken = counted = 0
        for _, each in read_summaries(str(self.sink.path)):
            counts = each.sources
            if counts is None or counts.received < counted:
                raise MismatchError(f"after {counted} rows the source has counted {counts}")
            taken, counted = taken + each.applied + each.superseded, counts.received
            if taken != counted or not 0 <= counts.late_idle <= counts.late <= counted - counts.suspects:
                raise MismatchError(f"of {counted} rows {taken} are accounted for: {counts}")

    def folder(self) -> None:
        """Nothing lies there without a name but what the dead left."""
        path: Path = self.sink.path
        if not (path / "_delta_log").exists():
            return
        known = self.names.read(path) | self.sink.left_behind
        # Each deletion vector has a copy that VACUUM does not see.
        unnamed = (
            files_in(path) - known - {COPIES + name.removeprefix(VECTORS) for name in known if name.startswith(VECTORS)}
        )
        if unnamed:
            raise MismatchError(f"files that no entry of the log names: {sorted(unnamed)}")


def _rows(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    """Rows that are no punctuation."""
    return (row for table in tables for row in table.to_pylist() if not row[SYSTEM]["punctuation"])


def _marks(tables: Iterable[pa.Table], name: str) -> Iterator[tuple[str, int]]:
    """Feeds and what is promised for them; without a time, that they have ended."""
    for table in tables:
        marks = table.filter(pc.struct_field(table.column(SYSTEM), "punctuation"))
        times = pc.cast(marks.column(name), pa.int64()).to_pylist()
        for row, time in zip(marks.column(SYSTEM).to_pylist(), times, strict=True):
            yield row["source"], _EVER if time is None else time


def _time_of(table: pa.Table) -> str:
    """The column of the event time of what leaves."""
    return next(name for name in ("join_time", "t", "window_time", "window_end") if name in table.column_names)


def _micros(time: Any) -> int:
    """Of a TIMESTAMP that Arrow has made a `datetime`."""
    return pa.scalar(time, pa.timestamp("us", "UTC")).value
