"""``upstream plan``: predict staleness by simulation, without a JVM."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from typing import cast

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ..conf.errors import OptionError
from ..conf.units import StalenessTarget, format_duration_us
from ..datasource.connectors.synthetic.stream import Recipe, synthetic_arrivals
from ..operators.capacity.simulation import PLANNED, ArrivalTrace, Prediction, Server, plan
from ..operators.queue.queue import Policy

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
    server, until, grain = _extent(question, effort)
    seeds = min(question.seeds, effort.seeds)

    def arrivals(seed: int, end_us: int) -> ArrivalTrace:
        recipe = Recipe(
            seed=seed, rows_per_second=question.rate, keys=question.keys, skew=question.skew, at_random=True
        )
        return ArrivalTrace(*synthetic_arrivals(recipe, end_us), question.keys)

    found = plan(arrivals, server, until, policies=_policies(question), seeds=seeds, grain=grain, ran=ran)
    return Answer(found, until, seeds)


def print_plan(
    question: Question, console: Console, target: StalenessTarget | None = None, *, quick: bool = False
) -> bool:
    """Print a rough prediction, then a better one; return whether a policy meets the target."""
    capacity = Server(question.cost_us, question.fixed_us, question.budget).rows_per_second
    first, better = (_extent(question, effort) for effort in (FIRST, BETTER))
    console.print(
        f"{question.rate:,.0f} rows/s of {question.keys:,} keys; the server can do {capacity:,.0f} rows/s: load "
        f"{question.rate / capacity:.2f}."
    )
    small = first == better and first[1] * question.rate / 1e6 * question.seeds < FIRST.rows
    if quick or not small:
        answer = predict(question, FIRST)
        console.print(f"First answer, {_basis(answer)}:")
        _print_table(answer.predictions, console, target)
        if quick:
            return _met(answer.predictions, target)
        console.print()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("Simulating", total=len(_policies(question)) * question.seeds)
        answer = predict(question, BETTER, lambda: progress.advance(task))
    console.print(f"{'Simulated' if small else 'Better answer,'} {_basis(answer)}:")
    _print_table(answer.predictions, console, target)
    console.print("Staleness is from arrival to commit, for a random key at a random moment.")
    if any(each.grows for each in answer.predictions):
        console.print("(grows): still rising at the end of the run; simulate longer with --for.")
    return _met(answer.predictions, target)


def _policies(question: Question) -> Sequence[Policy]:
    return cast("Sequence[Policy]", question.policies or PLANNED)


def _basis(answer: Answer) -> str:
    return f"{answer.seeds} run{'s' if answer.seeds > 1 else ''} of {format_duration_us(answer.until_us)} each"


def _met(predictions: Sequence[Prediction], target: StalenessTarget | None) -> bool:
    return target is None or any(target.met(each) and not each.grows for each in predictions)


def _print_table(predictions: Sequence[Prediction], console: Console, target: StalenessTarget | None) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for name in ("mean", "p50", "p99", "max", "results/s", "waiting", "busy"):
        table.add_column(name, justify="right", no_wrap=True)
    if target is not None:
        table.add_column(str(target), no_wrap=True)
    for each in predictions:
        cells = [format_duration_us(value * 1e6) for value in (each.mean, each.p50, each.p99, each.max)]
        met = [] if target is None else ["yes" if target.met(each) and not each.grows else "no"]
        table.add_row(
            each.policy + (" (grows)" if each.grows else ""),
            *cells,
            f"{each.applied_per_s:,.0f}",
            f"{each.pending:,.0f}",
            f"{each.busy:.0%}",
            *met,
        )
    console.print(table)


def _extent(question: Question, effort: Effort) -> tuple[Server, int, int]:
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
