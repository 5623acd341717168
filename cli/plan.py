"""``upstream plan``: what staleness to expect, before anything is built. No JVM."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

from rich.console import Console
from rich.table import Table

from ..conf.errors import OptionError
from ..conf.staleness_target import StalenessTarget
from ..conf.units import format_duration_us, parse_duration_us
from ..datasource.connectors.synthetic.arrivals import synthetic_arrivals
from ..datasource.connectors.synthetic.stream import Recipe
from ..operators.planning import PLANNED, Prediction, plan
from ..operators.queue.queue import Policy
from ..operators.simulation import Arrivals, Server

__all__ = ["Question", "predict", "print_plan"]

# A run lasts until about so many batches were served and every key could be served this often, within bounds.
_BATCHES = 1_000
_ROUNDS = 10
_MOST_ROWS = 2_000_000


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes
    ----------
    rate : float
        Rows per second.
    keys : int
    skew : float
        Zipf's exponent; 0 is even.
    cost_us, fixed_us : int
        Of a row, of a batch.
    budget : int or None
        The most rows in a batch; None is everything that waits.
    policies : sequence of str
        None is all.
    duration_us : int or None
        How long to simulate; None chooses.
    seeds : int
        Runs.
    """

    rate: float
    keys: int
    skew: float
    cost_us: float
    fixed_us: float
    budget: int | None
    policies: Sequence[str] = ()
    duration_us: int | None = None
    seeds: int = 3


def duration(text: str, name: str) -> int:
    """Microseconds of an option's value.

    Raises
    ------
    OptionError
        It is not a duration.
    """
    try:
        return parse_duration_us(text)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None


def predict(question: Question) -> tuple[list[Prediction], int]:
    """Simulate what is asked; returns the predictions and how long a run was, in microseconds."""
    if question.rate <= 0 or question.keys < 1 or question.skew < 0:
        raise OptionError(
            f"{question.rate} rows per second of {question.keys} keys with skew {question.skew}",
            expected="a rate above 0, at least 1 key, a skew of at least 0",
        )
    server = Server(question.cost_us, question.fixed_us, question.budget)
    until = question.duration_us or _long_enough(question, server)

    def arrivals(seed: int, end_us: int) -> Arrivals:
        recipe = Recipe(
            seed=seed, rows_per_second=question.rate, keys=question.keys, skew=question.skew, at_random=True
        )
        return Arrivals(*synthetic_arrivals(recipe, end_us), question.keys)

    policies = cast("Sequence[Policy]", question.policies or PLANNED)
    return plan(arrivals, server, until, policies=policies, seeds=question.seeds), until


def print_plan(question: Question, console: Console, target: StalenessTarget | None = None) -> bool:
    """Print a table of what is to be expected; returns whether some policy meets the target."""
    predictions, until = predict(question)
    capacity = Server(question.cost_us, question.fixed_us, question.budget).rows_per_second
    console.print(
        f"{question.rate:,.0f} rows/s of {question.keys:,} keys; the server can do {capacity:,.0f} rows/s: load "
        f"{question.rate / capacity:.2f}. Simulated {format_duration_us(until)}, {question.seeds} runs each."
    )
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
            f"{each.delivered_per_s:,.0f}",
            f"{each.pending:,.0f}",
            f"{each.busy:.0%}",
            *met,
        )
    console.print(table)
    console.print("Staleness from arrival to commit, as a reader of a random key at a random moment sees it.")
    if any(each.grows for each in predictions):
        console.print("(grows): not yet at its end when the run ended; a longer --for shows more.")
    return target is None or any(target.met(each) and not each.grows for each in predictions)


def _long_enough(question: Question, server: Server) -> int:
    batch_us = server.batch_us(question.budget or max(round(question.rate * server.fixed_us / 1e6), 1))
    rounds_us = _ROUNDS * question.keys / server.rows_per_second * 1e6 if question.budget is not None else 0.0
    wanted = max(_BATCHES * batch_us if question.fixed_us == 0 else 100 * batch_us, rounds_us)
    return round(max(min(wanted, _MOST_ROWS / question.rate * 1e6), 10 * batch_us))
