"""Staleness predicted by simulation: of a load that is given, or of the load that a table's query has."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..conf.errors import OptionError, UpstreamError
from ..core.feedback.checkpoint_layout import queue_folder
from ..core.feedback.control import NOW, ControlLog, newest_record, taken_in
from ..core.feedback.offsets import journaled_offsets
from ..core.feedback.reports import ServiceReport, read_reports
from ..datasource.connectors.synthetic.stream import Recipe, synthetic_arrivals
from ..operators.capacity.simulation import PLANNED, ArrivalTrace, Prediction, Server, plan
from ..operators.queue.queue import Policy
from ..sink.figures.summary import run_figures
from ..storage.folder import TableFolder
from .plan_graph import stored_steps

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from ..sink.figures.summary import CommitSummary
    from .bench import Bench
    from .watch import WatchedTable

# A run lasts until about so many batches were served, and every key could be served some times, within bounds.
_BATCHES = 1_000
_FINEST = 50
"""Batches simulated as one last at most 1/50 of the time in which every key is served once."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """Upper bounds for a simulation."""

    services: int  # of a run, as are `rows`
    rows: int
    rounds: int  # how often every key could be served
    seeds: int  # runs of each policy


FIRST = Effort(services=250, rows=400_000, rounds=4, seeds=1)
BETTER = Effort(services=2_000, rows=2_000_000, rounds=10, seeds=1_000)


@dataclasses.dataclass(frozen=True)
class Question:
    """The load to simulate, the policies, and the length."""

    rate: float  # rows per second
    keys: int
    skew: float  # Zipf's exponent; 0 is even
    cost_us: float  # of a row; `fixed_us` is that of a batch
    fixed_us: float
    budget: int | None  # the most rows in a batch; None is all that wait
    policies: Sequence[str] = ()  # empty for all
    duration_us: int | None = None  # the simulated time; None chooses one
    seeds: int = 3


@dataclasses.dataclass(frozen=True)
class Answer:
    """Predictions, with the simulated time and the runs of each policy that they are based on."""

    predictions: Sequence[Prediction]
    until_us: int
    seeds: int


def predict(question: Question, effort: Effort = BETTER, ran: Callable[[], None] = lambda: None) -> Answer:
    """Simulate a question, calling `ran` after each run."""
    server, until, grain = extent(question, effort)
    seeds = min(question.seeds, effort.seeds)

    def arrivals(seed: int, end_us: int) -> ArrivalTrace:
        recipe = Recipe(
            seed=seed, rows_per_second=question.rate, keys=question.keys, skew=question.skew, at_random=True
        )
        return ArrivalTrace(*synthetic_arrivals(recipe, end_us), question.keys)

    found = plan(arrivals, server, until, policies=policies_of(question), seeds=seeds, grain=grain, ran=ran)
    return Answer(found, until, seeds)


def policies_of(question: Question) -> Sequence[Policy]:
    """Return the policies that a question asks about."""
    return cast("Sequence[Policy]", question.policies or PLANNED)


def extent(question: Question, effort: Effort) -> tuple[Server, int, int]:
    """Return the server, the length of a run in microseconds, and how many of its batches are simulated as one."""
    if question.rate <= 0 or question.keys < 1 or question.skew < 0:
        raise OptionError(
            f"{question.rate} rows per second of {question.keys} keys with skew {question.skew}",
            expected="a rate above 0, at least 1 key, a skew of at least 0",
        )
    server = Server(question.cost_us, question.fixed_us, question.budget)
    until = question.duration_us or _long_enough(question, server, effort)
    if question.budget is None or (question.budget > 1 and question.fixed_us > 0):
        return server, until, 1  # a batch that is not full takes less than others only if they are not taken as one
    batch_us = question.budget / server.rows_per_second * 1e6
    services = until / batch_us
    if question.rate < server.rows_per_second:
        # Mostly one row waits, so every row is a service, and the steady state comes soon.
        enough = round(effort.services / question.rate * 1e6)
        return server, until if question.duration_us is not None else min(until, max(enough, round(10 * batch_us))), 1
    grain = min(math.ceil(services / effort.services), max(1, question.keys // (_FINEST * question.budget)))
    return server, until, grain


def _long_enough(question: Question, server: Server, effort: Effort) -> int:
    batch_us = server.batch_us(question.budget or max(round(question.rate * server.fixed_us / 1e6), 1))
    rounds_us = effort.rounds * question.keys / server.rows_per_second * 1e6 if question.budget is not None else 0.0
    wanted = max(_BATCHES * batch_us if question.fixed_us == 0 else 100 * batch_us, rounds_us)
    return round(max(min(wanted, effort.rows / question.rate * 1e6), 10 * batch_us))


_SECONDS = 1.4
_COMMITS = 50
_MOST_KEYS = 1_000_000
_MOST_ROWS = 2_000_000
_SKEWS = np.linspace(0.0, 1.5, 31)
_RANKS = 2_000


def commits_as_now(table: WatchedTable, most: int) -> list[CommitSummary]:
    """Return a query's commits of batches planned since a setting changed (requests change none), or None."""
    commits = [summary for _, summary in table.commits]
    mine = [each for each in commits if each.query_id == commits[-1].query_id][-most:] if commits else []
    if not mine or table.checkpoint is None:
        return mine
    checkpoint = TableFolder(table.checkpoint, table.storage)
    try:
        changes = ControlLog(checkpoint).changes()
        changed = max((number for number, each in enumerate(changes, 1) if each.value != NOW), default=0)
        record = newest_record(journaled_offsets(checkpoint, mine[-1].batch_id)) if changed else None
    except (OSError, ValueError, UpstreamError):  # it is being written, or the journal no longer has the batch
        return mine
    if changed > (0 if record is None else record["version"]):
        return []
    taken = None if record is None else taken_in(record["taken"], changed)
    return mine if taken is None else [each for each in mine if each.batch_id >= taken[0]]


def measured(table: WatchedTable) -> dict[str, Any]:
    """Return a question's parameters from a query's last commits, None with a note if unknown, and what is seen."""
    mine = commits_as_now(table, _COMMITS)
    if len(mine) < 3:
        need = "A measurement needs three commits of the query, all since its settings last changed."
        return {"load": None, "seen": None, "notes": [need]}
    last, later = mine[-1], mine[1:]
    span_s = _span_s(mine)
    applied = sum(each.applied for each in later)
    cost_us, fixed_us, note = _served_cost(table, mine) or _cost(mine, list(map(_served, mine)))
    load = _load(mine, cost_us, fixed_us)
    unseen = ["The commits do not show the skew of updates over keys."] if load["skew"] is None else []
    figures = run_figures(mine)
    return {
        "load": load,
        "seen": None
        if figures is None
        else {
            "staleness": None if figures.staleness is None else vars(figures.staleness),
            "over_time": figures.over_time,
            "applied_per_s": applied / span_s,
            "pending": last.pending,
            "queue": last.queue is not None,
            "commits": len(mine),
            "seconds": span_s,
        },
        "notes": [note, *unseen],
    }


def _span_s(commits: Sequence[CommitSummary]) -> float:
    return max((commits[-1].committed_at_us - commits[0].committed_at_us) / 1e6, 1e-3)


def _load(commits: Sequence[CommitSummary], cost_us: float, fixed_us: float) -> dict[str, Any]:
    """Return the parameters of a question about the load that some commits show."""
    last, later = commits[-1], commits[1:]
    keys, span_s = max(last.keys or 0, last.pending or 0), _span_s(commits)
    rate = sum(_arrived(each) for each in later) / span_s
    applied = sum(each.applied for each in later)
    return {
        "rate": rate,
        "keys": max(keys, 1),
        "skew": _skew(commits, keys, rate, span_s),
        "cost_us": cost_us,
        "fixed_us": fixed_us,
        "budget": max(round(applied / len(later)), 1) if last.pending else None,
    }


_LATEST = 6
_WORTH = 0.1


def budget_advice(table: WatchedTable) -> str:
    """Return how another budget would change an overloaded queue's mean staleness; empty if that is unknown."""
    mine = commits_as_now(table, _LATEST)
    served = _served_cost(table, mine) if len(mine) == _LATEST else None
    if served is None or not mine[-1].pending or policy_in_force(table) in ("append", "shed"):
        return ""
    cost_us, fixed_us, _ = served
    keys, rows = mine[-1].pending, max(sum(each.applied for each in mine[1:]) / (len(mine) - 1), 1.0)
    best = float(f"{min(math.sqrt(keys * fixed_us / cost_us / 2), keys) or 1.0:.2g}")

    def mean_us(budget: float) -> float:
        return (fixed_us + cost_us * budget) * (1 + keys / budget / 2)

    gain = 1 - mean_us(best) / mean_us(rows)
    if gain < _WORTH:
        return f"Batches of {rows:,.0f} rows are near the best: only cheaper rows, or more cores, lower staleness."
    return f"Batches of about {best:,.0f} rows in place of {rows:,.0f} would lower staleness by {100 * gain:.0f} %."


_WINDOWS, _FEWEST = 12, 5


def past_predictions(commits: Sequence[CommitSummary], policy: Policy, seconds: float = 1.0) -> dict[str, Any]:
    """Return what would have been predicted from each stretch of a query's commits for the next one, and what was seen.

    `policy` is that of the queue. The time goes to the newest stretches; staleness is of a random key at a random
    moment. `median` is of the ratios of predicted to seen; nine in ten are within the `factor` of 1.
    """
    mine = [each for each in commits if each.query_id == commits[-1].query_id] if commits else []
    length = max(len(mine) // _WINDOWS, _FEWEST)
    parts = [mine[at : at + length] for at in range(len(mine) % length, len(mine), length)]
    until_s, found = time.monotonic() + seconds, list[dict[str, Any]]()
    for before, after in reversed(list(pairwise(parts))):
        figures = run_figures(after)
        if time.monotonic() > until_s or figures is None or figures.over_time is None:
            continue
        cost_us, fixed_us, _ = _cost(before, [each.applied for each in before])
        load = _load(before, cost_us, fixed_us)
        load["skew"] = load["skew"] or 0.0
        question = Question(policies=(policy,), seeds=1, **load)
        seen = sum(figures.over_time) / 2
        if question.rate <= 0 or seen <= 0 or _too_large(question):
            continue
        (predicted,) = predict(question, FIRST).predictions
        found.append({"at_us": after[-1].committed_at_us, "predicted": predicted.mean, "seen": seen})
    found.reverse()
    ratios = np.array([each["predicted"] / each["seen"] for each in found])
    errors = np.abs(np.log(np.maximum(ratios, 1e-9)))
    return {
        "policy": policy,
        "commits": length,
        "stretches": [{**each, "ratio": float(ratio)} for each, ratio in zip(found, ratios, strict=True)],
        "median": float(np.median(ratios)) if found else None,
        "factor": float(np.exp(np.quantile(errors, 0.9))) if found else None,
    }


def policy_in_force(table: WatchedTable) -> Policy:
    """Return the policy that predicts a table's query: that of its queue, or one that serves each key once a batch."""
    steps = [] if table.checkpoint is None else stored_steps(TableFolder(table.checkpoint, table.storage), ())
    found = [each["changeable"]["policy"] for each in steps if "policy" in each["changeable"]]
    policy = found[0] if found else "in-place"
    return cast("Policy", "linecutting" if policy == "auto" else policy)


def _too_large(question: Question) -> str | None:
    """Return how large a question is, if it is too large for a browser."""
    rows = question.rate * extent(question, FIRST)[1] / 1e6
    if question.keys <= _MOST_KEYS and rows <= _MOST_ROWS:
        return None
    return f"{question.keys:,} keys, and {rows:,.0f} rows until the state is steady"


def _arrived(summary: CommitSummary) -> int:
    return summary.updates if summary.queue is None else summary.queue.arrived


def _served_cost(table: WatchedTable, commits: Sequence[CommitSummary]) -> tuple[float, float, str] | None:
    """Return the same as :func:`_cost` from the reports of the steps after the queue; None without any."""
    if table.checkpoint is None:
        return None
    try:
        place = TableFolder(queue_folder(table.checkpoint), table.storage)
        served = [each for each in read_reports(place, ServiceReport) if each.rows]
    except (OSError, ValueError, UpstreamError):
        return None
    if not served:
        return None
    took_us = max(each.ended_us for each in served) - min(each.began_us for each in served)
    cost_us = max(took_us / sum(each.rows for each in served), 0.01)
    mean_us = _span_s(commits) * 1e6 / (len(commits) - 1)
    mean_rows = max(sum(_served(each) for each in commits[1:]) / (len(commits) - 1), 1.0)
    return cost_us, max(mean_us - cost_us * mean_rows, 0.0), "Costs are those of the steps after the queue."


def _served(summary: CommitSummary) -> int:
    return summary.rows if summary.queue is None else summary.applied


def _cost(commits: Sequence[CommitSummary], served: Sequence[int]) -> tuple[float, float, str]:
    """Return the microseconds of a row, and of a batch besides its `served` rows, and how they were found."""
    batch_us = np.diff([each.committed_at_us for each in commits]).astype(np.float64)
    rows = np.array(served[1:], np.float64)
    mean_us, mean_rows = float(batch_us.mean()), max(float(rows.mean()), 1.0)
    if len(rows) > 4 and float(rows.std()) > 0.05 * mean_rows:
        slope, fixed = (float(each) for each in np.polyfit(rows, batch_us, 1))
        if slope > 0 and fixed >= 0:
            return slope, fixed, "Costs are a straight line through the times between commits."
    if commits[-1].pending:
        return max(mean_us / mean_rows, 0.01), 0.0, "Costs are the time between commits over their rows."
    # Any division gives the present length of a batch.
    half_us = mean_us / 2
    return max(half_us / mean_rows, 0.01), half_us, "Costs are the time between commits, half of it for the rows."


def _skew(commits: Sequence[CommitSummary], keys: int, rate: float, span_s: float) -> float | None:
    """Return the exponent of Zipf's law with which as many keys meet in a batch, or in the queue, as were seen."""
    if keys < 10 or rate <= 0:
        return None
    last, later = commits[-1], commits[1:]
    if last.queue is not None:
        served = sum(each.applied for each in later) / span_s
        if not last.pending or not served:
            return None
        wait_s = last.pending / served
        wanted, draws = float(last.pending), rate * wait_s
    else:
        draws = sum(each.updates for each in later) / len(later)
        wanted = sum(each.applied for each in later) / len(later)
        if draws < 10 or wanted >= draws:
            return None
    # Ranks close together at the head, where probabilities differ most; each stands for those up to the next.
    ranks = np.unique(np.geomspace(1, keys, _RANKS).astype(np.int64))
    many = np.diff(ranks, append=keys + 1).astype(np.float64)
    found: list[float] = []
    for skew in _SKEWS:
        weight = (ranks + (many - 1) / 2) ** -skew
        expected = draws * weight / float((weight * many).sum())
        # A waiting key's share of the time, or the share of keys with an update in the batch.
        share = expected / (1 + expected) if last.queue is not None else -np.expm1(-expected)
        found.append(float((share * many).sum()))
    gaps = np.abs(np.array(found) - wanted)
    return round(float(_SKEWS[int(gaps.argmin())]), 2) if gaps.min() < 0.25 * wanted else None


def answer_quickly(question: Question, seconds: float = _SECONDS, in_force: Policy | None = None) -> dict[str, Any]:
    """Return rough predictions, the policy `in_force` first, until the time is over, and those left out."""
    server, until_us, _ = extent(question, FIRST)
    size = _too_large(question)
    if size is not None:
        raise OptionError(
            size,
            expected=f"at most {_MOST_KEYS:,} keys and {_MOST_ROWS:,} rows in a browser",
            hint="ask for fewer rows per batch or per second, or run `upstream plan`, which has no such limit",
        )
    until_s, found, left = time.monotonic() + seconds, list[Prediction](), list[str]()
    policies = [*policies_of(question)][::-1]
    for policy in sorted(policies, key=lambda each: each != in_force):
        if time.monotonic() > until_s:
            left.append(policy)
            continue
        found += predict(dataclasses.replace(question, policies=(policy,)), FIRST).predictions
    return {
        "predictions": [dataclasses.asdict(each) for each in found],
        "left_out": left,
        "in_force": in_force,
        "capacity": server.rows_per_second,
        "load": question.rate / server.rows_per_second,
        "simulated_s": until_us / 1e6,
    }


_FIELDS: dict[str, tuple[type, bool]] = {
    "rate": (float, True),
    "keys": (int, True),
    "skew": (float, False),
    "cost_us": (float, True),
    "fixed_us": (float, False),
    "budget": (int, False),
}


def question_of(body: dict[str, Any]) -> Question:
    """Return the question of a request's body; raise an OptionError for unknown, missing or wrong numbers."""
    given: dict[str, Any] = {"skew": 0.0, "fixed_us": 0.0, "budget": None}
    unknown = sorted(body.keys() - _FIELDS.keys())
    missing = [name for name, (_, needed) in _FIELDS.items() if needed and body.get(name) is None]
    if unknown or missing:
        raise OptionError(
            f"unknown: {', '.join(unknown)}" if unknown else f"missing: {', '.join(missing)}",
            expected="the numbers " + ", ".join(_FIELDS),
        )
    for name, value in body.items():
        kind, _ = _FIELDS[name]
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
            raise OptionError(f"{name}={str(value)[:40]!r}", expected="a number that is not negative")
        given[name] = kind(value)
    return Question(seeds=1, **given)


def routes(bench: Bench) -> list[Route]:
    """Return the routes of the prediction and of the load that is measured."""

    def load(request: Request) -> dict[str, Any]:
        return measured(bench.watch.shown(request.query_params.get("table")))

    def past(request: Request) -> dict[str, Any]:
        table = bench.watch.shown(request.query_params.get("table"))
        return past_predictions([summary for _, summary in table.commits], policy_in_force(table))

    def answer(request: Request) -> dict[str, Any]:
        question, table = question_of(request.state.body), request.query_params.get("table")
        return answer_quickly(question, in_force=None if table is None else policy_in_force(bench.watch.shown(table)))

    return [
        bench.endpoint("/api/v1/load", load),
        bench.endpoint("/api/v1/predictions", past),
        bench.endpoint("/api/v1/plan", answer, methods=["POST"]),
    ]
