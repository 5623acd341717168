"""What must hold of hosted queries after each batch, and at the end."""

import dataclasses
import json
import re
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from kit import golden

from upstream.hosting.host_plan import HostPlan, PlacedQuery
from upstream.hosting.registry import RegisteredQuery, Registry
from upstream.hosting.reports import QueryReport

from .hosted_inputs import HostedInputs
from .hosted_oracle import BEFORE, Answers, Contents, Domain, Watermarks, plain, relation, windows_in, with_views
from .hosted_process import HostProcess
from .hosted_queries import REASONS
from .hosted_rows import STREAMS
from .sinks import Names, files_in
from .stages import MismatchError

_OURS = ("row_key", "copy")
_MENDED = {"1 / n": "1 / NULLIF(n, 0)", "CAST(sym": "TRY_CAST(sym", "(speed - 2)": "NULLIF(speed - 2, 0)"}
"""What fails in one engine is null in the oracle's; whether it has to fail is another question to it."""


@dataclasses.dataclass
class Incarnation:
    """What is known of one so far."""

    text: str
    first: int
    # From which batch on it may have seen rows, of queries that have missed some.
    since: set[int]
    # Of a feed that is whole: what is due by a time, and the relation at that time.
    expected: Contents = dataclasses.field(default_factory=Counter)
    until: int = BEFORE
    last: Contents = dataclasses.field(default_factory=Counter)


class HostedChecks:
    """Follows the batches."""

    def __init__(self, process: HostProcess, inputs: HostedInputs) -> None:
        self._process = process
        self._inputs = inputs
        self._watermarks = Watermarks()
        self._known: dict[int, Incarnation] = {}
        self._held: dict[str, Contents] = {}
        self._names: dict[str, Names] = {}
        self._readers: dict[str, DeltaTable] = {}
        self._deleted: dict[str, int] = {}
        self._letters: Contents = Counter()
        self._late: Counter[int] = Counter()
        self.left_behind: set[str] = set()
        self.compared = 0

    def after(self) -> None:
        """Compare each table with what it must hold."""
        process = self._process
        batch = process.commits - 1
        plan = process.plan(batch)
        registry = process.plans.registry_of(plan.version)
        registered = {each.id: each for each in registry.queries.values()}
        views, models = registry.catalog.views, process.models_at(plan.version)
        self._forget_deleted(registry)
        self._watermarks.take(self._inputs.taken[batch], {_domain(each) for each in plan.queries.values()})
        self._expect_letters(batch, plan)
        failed, served, reports = process.failed(batch), process.served(batch), process.reports()
        untouched = set(self._held)
        groups: dict[tuple[Domain, str], list[PlacedQuery]] = {}
        for number, query in plan.queries.items():
            text = with_views(registered[number].text, views)
            self._known.setdefault(number, Incarnation(text, batch, set(range(batch + 1))))
            if number in failed:
                self._may_fail(registered[number], failed[number])
            else:
                groups.setdefault((_domain(query), query.domain.clock), []).append(query)
                untouched.discard(query.name)
        if plan.refused:
            raise MismatchError(f"queries are refused: {plan.refused}")
        for (domain, clock), queries in groups.items():
            late = self._watermarks.late[domain] if clock == "event" else set[int]()
            rows = self._inputs.rows(newest=clock == "arrival")
            answers = Answers(rows, late, {"models": models})
            low = self._watermarks.reached[domain]
            for query in queries:
                arrival, report = clock == "arrival", reports.get(query.id)
                self._look_at(query, answers, low, batch, report, arrival, served)
        for name in untouched:
            if self._contents(name) != self._held[name]:
                raise MismatchError(f"batch {batch} changed the table of {name}, which does not run or has failed")
        for path in sorted(self._process.lake.glob("*")):
            names = self._names.setdefault(path.name, Names()).read(path)
            strange = {each for each in files_in(path) - names if f"{path.name}/{each}" not in self.left_behind}
            if strange:
                raise MismatchError(f"no entry of the log of {path.name} names {sorted(strange)}")

    def forgive(self) -> None:
        """A process died: what lies in the folders may stay without a name."""
        self.left_behind |= {f"{path.name}/{each}" for path in self._process.lake.glob("*") for each in files_in(path)}

    def _expect_letters(self, batch: int, plan: HostPlan) -> None:
        queries = [each for each in plan.queries.values() if each.domain.clock == "event"]
        for row in self._inputs.taken[batch].rows:
            missed = [each for each in queries if row.seq in self._watermarks.late[_domain(each)]]
            if missed:
                self._late.update(each.id for each in missed)
            if missed and row.stream in self._process.keeps_late:
                self._letters[batch, row.stream, row.time, ", ".join(sorted(each.name for each in missed))] += 1

    def _check_letters(self) -> None:
        found: Contents = Counter()
        if self._letters or Path(self._process.letters).exists():
            for each in DeltaTable(self._process.letters).to_pyarrow_table().to_pylist():
                values = json.loads(each["payload"])
                moment = datetime.fromisoformat(values[STREAMS[each["origin"]].event_time]).astimezone(timezone.utc)
                names = each["reason"].removeprefix("late for ").partition(":")[0]
                found[each["batch"], each["origin"], plain(moment), names] += 1
        if found != self._letters:
            lacks, more = _shown(self._letters - found), _shown(found - self._letters)
            raise MismatchError(f"the dead letters lack {lacks}; have beyond that {more}")

    def _forget_deleted(self, registry: Registry) -> None:
        """Expect nothing of the tables that were deleted with their queries; those of later queries start over."""
        for name, version in registry.deleted.items():
            if self._deleted.get(name) == version:
                continue
            self._deleted[name] = version
            for known in (self._held, self._names, self._readers):
                known.pop(name, None)
            if name not in registry.queries and (self._process.lake / name).exists():
                raise MismatchError(f"the query {name} was dropped with its table, which is there")

    def _may_fail(self, query: RegisteredQuery, reason: str) -> None:
        word = next((each for each in REASONS if each in query.text), None)
        if word is None:
            raise MismatchError(f"{query.name} ({query.text}) failed: {reason}")
        known = self._process.registry().queries.get(query.name)
        if known is not None and known.id == query.id and known.active:
            raise MismatchError(f"{query.name} failed, and is still active")
        stream = next(each for each in ("trade", "quote", "buses") if each in query.text)
        answers = Answers(self._inputs.rows(newest=True), set())
        if not answers.at(f"SELECT 1 FROM r_{stream} WHERE {REASONS[word]}", 0):
            raise MismatchError(f"{query.name} ({query.text}) failed on no row: {reason}")

    def _look_at(
        self,
        query: PlacedQuery,
        answers: Answers,
        low: int | None,
        batch: int,
        report: QueryReport | None,
        arrival: bool,
        served: frozenset[int] | None,
    ) -> None:
        known, begun = self._known[query.id], report is not None and report.begun
        if (0 if report is None else report.late) != self._late[query.id]:
            raise MismatchError(f"{query.name} has {report}, and {self._late[query.id]} rows were late")
        if not arrival and begun != (low is not None):
            raise MismatchError(f"{query.name} has begun: {begun}, and the low-watermark is {low}")
        tau = None if arrival else (low or 0) - 1
        found = self._contents(query.name)
        held = self._held.get(query.name, Counter()) if batch > known.first else Counter[tuple[Any, ...]]()
        self._held[query.name] = found
        if not begun:
            self._same(query, batch, found, Counter())
            return
        if served is not None and query.id not in served:
            self._same(query, batch, found, held)
            return
        assert report is not None
        if query.result.kind == "feed":
            if not arrival:
                assert tau is not None
                self._feed(query, known, answers, tau, batch, report.complete_from, found)
            return
        self._table(query, known, answers, tau, batch, report.complete_from, found)

    def _table(
        self, query: PlacedQuery, known: Incarnation, answers: Answers, tau: int | None, batch: int, whole: int | None,
        found: Contents,
    ) -> None:  # fmt: skip
        text, at, arrival = _mended(known.text), tau or 0, tau is None
        if whole is not None and (arrival or at >= whole):
            word = next((each for each in REASONS if each in known.text), None)
            if word is not None:
                source = known.text[known.text.index(" FROM ") :].partition(" GROUP BY ")[0]
                bad = answers.at(f"SELECT 1{source} WHERE {REASONS[word]}", at, arrival=arrival)
                if bad:
                    raise MismatchError(f"{query.name} ({known.text}) did not fail in batch {batch}")
            self._same(query, batch, found, answers.at(text, at, arrival=arrival))
            self.compared += 1
        elif windows_in(text) == 1 and "UNBOUNDED" not in text:  # what it begins with nobody has kept
            may = {each for each in known.since if answers.at(text, at, each, arrival=arrival) == found}
            if not may:
                since = f"{sorted(known.since)} and later: {_shown(found)}"
                raise MismatchError(f"{query.name} ({known.text}) after batch {batch} is that of no batch in {since}")
            known.since = may
            self.compared += 1

    def _feed(
        self, query: PlacedQuery, known: Incarnation, answers: Answers, tau: int, batch: int, whole: int | None,
        found: Contents,
    ) -> None:  # fmt: skip
        if whole is None:
            return
        text, way = relation(_mended(known.text))
        if whole > BEFORE and tau < whole - 1:
            return
        if known.until == BEFORE and whole > BEFORE:
            known.until = whole - 1
            known.last = answers.at(text, known.until)
        elif known.until == BEFORE:
            known.last = answers.at(text, BEFORE)
            known.expected = Counter({(*row, None): n for row, n in known.last.items()} if way == "istream" else {})
            known.until = BEFORE + 1
        for time in answers.points(text, known.until + 1, tau + 1):
            now = answers.at(text, time)
            moved = now - known.last if way == "istream" else known.last - now
            known.expected.update({(*row, time): count for row, count in moved.items()})
            known.last = now
        known.until = max(known.until, tau)
        since = whole if whole > BEFORE else None
        due = {row: n for row, n in found.items() if since is None or (row[-1] is not None and row[-1] >= since)}
        self._same(query, batch, Counter(due), known.expected)
        self.compared += 1

    def _same(self, query: PlacedQuery, batch: int, found: Contents, expected: Contents) -> None:
        if found != expected:
            raise MismatchError(
                f"the table of {query.name} (incarnation {query.id}, {self._known[query.id].text}) after batch {batch} "
                f"lacks {_shown(expected - found)}; has beyond that {_shown(found - expected)}"
            )

    def _contents(self, name: str) -> Contents:
        """What any reader sees. Where rows are counted, the table's copies have a number each, and keys are texts."""
        path = Path(self._process.lake) / name
        reader = self._readers.get(name)
        try:
            if reader is None:
                reader = self._readers[name] = DeltaTable(str(path))
            else:
                reader.update_incremental()
            table = reader.to_pyarrow_table()
        except (OSError, DeltaError) as error:
            raise MismatchError(f"the table of {name} cannot be read: {_words(error)}") from error
        hidden = [each for each in table.column_names if each.startswith("_upstream")]
        table = table.drop_columns([*hidden, *[each for each in _OURS if each in table.column_names]])
        if table.num_columns == 0:
            return Counter({(): table.num_rows}) if table.num_rows else Counter()
        return Counter(tuple(map(plain, row.values())) for row in table.to_pylist())

    def answers(self) -> dict[str, Any]:
        """What the tables hold, and which queries are active."""
        # A process may have died before it gave its table a first version.
        tables = sorted({log.parts[-3] for log in self._process.lake.glob("*/_delta_log/*.json")})
        active = sorted(name for name, each in self._process.registry().queries.items() if each.active)
        return {"active": active, **{name: golden.digest(self._contents(name).elements()) for name in tables}}

    def on_end(self) -> None:
        """Each table has each batch in one commit at most; each late row is one dead letter, for whom it was late."""
        self._check_letters()
        given, came = ([row.seq for row in self._inputs.rows(newest=newest)] for newest in (False, True))
        if sorted(given) != came:
            raise MismatchError(f"readers of every row had the rows {given} of {came}")
        for path in self._process.lake.glob("*"):
            numbers: list[int] = []
            for entry in sorted((path / "_delta_log").glob("*.json")):
                actions = [json.loads(line) for line in entry.read_text().splitlines()]
                txns = {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each}
                own = [n for app, n in txns.items() if re.fullmatch(rf"[^/]*query/{path.name}", app)]
                numbers += own[:1]
            if numbers != sorted(set(numbers)):
                raise MismatchError(f"the table of {path.name} has batches twice, or out of order: {numbers}")


def _domain(query: PlacedQuery) -> Domain:
    return query.domain.streams, query.domain.lateness_us


def _mended(text: str) -> str:
    for one, other in _MENDED.items():
        text = text.replace(one, other)
    return text


def _shown(contents: Contents) -> str:
    return str(sorted(contents.items(), key=repr)[:6])


def _words(error: Exception) -> str:
    """Return an error in one line: that of a failure is its last one."""
    return " ".join(str(error).split())
