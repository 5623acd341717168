"""``upstream plan``: predict staleness by simulation, without a JVM."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ..conf.units import StalenessTarget, format_duration_us
from ..operators.capacity.simulation import Prediction, Server
from ..workbench.prediction import BETTER, FIRST, Answer, Question, extent, policies_of, predict


def print_plan(
    question: Question, console: Console, target: StalenessTarget | None = None, *, quick: bool = False
) -> bool:
    """Print a rough prediction, then a better one; return whether a policy meets the target."""
    capacity = Server(question.cost_us, question.fixed_us, question.budget).rows_per_second
    first, better = (extent(question, effort) for effort in (FIRST, BETTER))
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
        task = progress.add_task("Simulating", total=len(policies_of(question)) * question.seeds)
        answer = predict(question, BETTER, lambda: progress.advance(task))
    console.print(f"{'Simulated' if small else 'Better answer,'} {_basis(answer)}:")
    _print_table(answer.predictions, console, target)
    console.print("Staleness is from arrival to commit, for a random key at a random moment.")
    if any(each.grows for each in answer.predictions):
        console.print("(grows): still rising at the end of the run; simulate longer with --for.")
    return _met(answer.predictions, target)


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
