"""What all benchmarks share: runs in processes of their own, equal results before any ratio, medians, tables, JSON."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from .environments import CACHE, flink_python, flink_sink_jar
from .memory import PeakMemory

__all__ = [
    "Measured",
    "Report",
    "Run",
    "arguments",
    "assert_equal",
    "cores",
    "engine_command",
    "environment",
    "fresh",
    "given_job",
    "introduce",
    "labelled",
    "machine",
    "progress",
    "run",
    "say",
    "say_whether_met",
    "whole_number",
]

ROOT = Path(__file__).parent.parent
_MARK = "BENCH "
_TIMEOUT_SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class Run:
    """One process.

    Attributes
    ----------
    seconds : float
        From its start to its end.
    peak_mb : float
        Of the process and all it started.
    reported : mapping
        The JSON that it printed, after ``BENCH ``.
    """

    seconds: float
    peak_mb: float
    reported: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Measured:
    """The runs of one engine at one work.

    Attributes
    ----------
    work, engine : str
    size : int
        Rows.
    seconds : sequence of float
        Of each run.
    peak_mb : float
        The largest of all runs.
    keys : int or None
        Where the work is told apart by them.
    """

    work: str
    engine: str
    size: int
    seconds: Sequence[float]
    peak_mb: float
    keys: int | None = None

    @property
    def median(self) -> float:
        """The middle one of the seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Slowest less fastest run, as a part of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median if self.median else 0.0


class Report:
    """Collects what was measured, prints it, and writes it as JSON.

    Parameters
    ----------
    us : str
        The engine that the others are compared with.
    by_rate : bool
        Compare rows per second: for works of which a slow engine is given fewer rows. Otherwise seconds, at the same
        size.
    """

    def __init__(self, us: str, *, by_rate: bool = False) -> None:
        self._us = us
        self._by_rate = by_rate
        self._measured: list[Measured] = []

    def add(self, measured: Measured) -> None:
        """Take one engine's runs at a work; further ones join those that are there."""
        for place, each in enumerate(self._measured):
            if _same(each, measured) and each.engine == measured.engine:
                seconds, peak = [*each.seconds, *measured.seconds], max(each.peak_mb, measured.peak_mb)
                self._measured[place] = dataclasses.replace(each, seconds=seconds, peak_mb=peak)
                return
        self._measured.append(measured)

    def ratio(self, measured: Measured) -> float | None:
        """Return its seconds (or those per row) as a multiple of ours at the same work; None without ours."""
        for ours in self._measured:
            if ours.engine == self._us and _same(ours, measured):
                return measured.median / ours.median
        for ours in self._measured if self._by_rate else ():
            if ours.engine == self._us and (ours.work, ours.keys) == (measured.work, measured.keys):
                return (measured.median / measured.size) / (ours.median / ours.size)
        return None

    def rows(self) -> list[dict[str, Any]]:
        """Return one JSON object for each work, engine and size."""
        return [
            {
                "work": each.work,
                "engine": each.engine,
                "size": each.size,
                "seconds": round(each.median, 4),
                "rows_per_second": round(each.size / each.median) if each.median else None,
                "peak_mb": round(each.peak_mb),
                "ratio_to_us": None if self.ratio(each) is None else round(self.ratio(each) or 0, 2),
                "spread": round(each.spread, 3),
                "runs": len(each.seconds),
                **({} if each.keys is None else {"keys": each.keys}),
            }
            for each in self._measured
        ]

    def show(self) -> None:
        """Print a table per work."""
        for work in dict.fromkeys(each.work for each in self._measured):
            print(f"\n{work}")
            print(
                f"  {'engine':34} {'rows':>11} {'seconds':>9} {'spread':>7} {'rows/s':>11} {'peak MB':>8} {'x ours':>7}"
            )
            for row in self.rows():
                if row["work"] == work:
                    ratio = "" if row["ratio_to_us"] is None else f"{row['ratio_to_us']:.2f}"
                    spread = f"{row['spread']:.0%}" if row["runs"] > 1 else ""
                    print(
                        f"  {row['engine'] + _keys(row):34} {row['size']:>11,} {row['seconds']:>9.3f} {spread:>7} "
                        f"{row['rows_per_second'] or 0:>11,} {row['peak_mb']:>8,} {ratio:>7}"
                    )

    def write(self, path: Path | None, **more: object) -> None:
        """Write the rows and the machine as JSON, if a path is given."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"machine": machine(), **more, "rows": self.rows()}, indent=1) + "\n")
            print(f"\nwritten: {path}")


def say_whether_met(aims: Sequence[tuple[str, float | None, float, bool]]) -> None:
    """Print of each aim whether it was met: what is measured, what was got (None: not measured), the bound, whether it
    is the least.
    """
    seen = [(name, got, bound, least) for name, got, bound, least in aims if got is not None]
    if seen:
        print("\naims")
    for name, got, bound, least in seen:
        met = got >= bound if least else got <= bound
        print(f"  {'met   ' if met else 'MISSED'} {name}: {got:,.2f} (aim: {'≥' if least else '≤'} {bound:,.6g})")


def introduce() -> None:
    """Print the machine in one line."""
    facts = machine()
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    print(f"{facts['cores']} cores, {facts['memory_gb']} GB, {versions}")


def progress(text: str) -> None:
    """Print what is being done."""
    print(f"… {text}", file=sys.stderr, flush=True)


def fresh(folder: Path, label: str) -> Path:
    """Return a free path below a folder.

    Removes what an earlier run left there, and everything beside it whose name begins with the label.
    """
    for leftover in folder.glob(f"{label}*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    return folder / label


def labelled(name: str) -> str:
    """Return the name of an engine or a work in a form that file names allow."""
    return "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")


def whole_number(text: str) -> int:
    """Parse a number of the command line: 20000, 20k, 0.5M."""
    factor = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 0)
    try:
        return int(float(text[:-1]) * factor) if factor else int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 20M") from error


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    # Whoever ends a benchmark also ends the engine that it runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="use reduced sizes and one run each: under four minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements as JSON")
    parser.add_argument("--runs", type=int, help="run each this often [default: 3, with --quick 1]")
    return parser


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def machine() -> dict[str, Any]:
    """Return what the numbers depend on: versions, cores, memory."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    versions = {"python": platform.python_version(), "java": java[0] if java else "none"}
    for name in ("pyspark", "delta-spark", "deltalake", "pyarrow", "polars", "duckdb", "numpy"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if (CACHE / "flink" / ".installed").exists():
        versions["apache-flink"] = (CACHE / "flink" / ".installed").read_text().partition("==")[2] or "2.3.0"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cores": cores(), "memory_gb": round(memory, 1), "system": platform.platform(), "versions": versions}


def environment() -> dict[str, str]:
    """Return the caller's environment, with the benchmarks on Python's path.

    Entries of the path stay: the package may be there, and not installed.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def engine_command(script: str, job: Mapping[str, Any]) -> list[str]:
    """Return the command that runs a module below ``benchmarks.engines`` with a job.

    If the module's name ends in ``flink``, the command uses Flink's environment.
    """
    if script.endswith("flink"):
        path = Path(__file__).parent / "engines" / f"{script}.py"
        return [str(flink_python()), str(path), json.dumps({**job, "sink_jar": str(flink_sink_jar())})]
    return [sys.executable, "-m", f"benchmarks.engines.{script}", json.dumps(job)]


def run(command: Sequence[str], *, env: Mapping[str, str] | None = None, log: str) -> Run:
    """Run a process in a session of its own; its time, its memory, and what it reported.

    Raises
    ------
    SystemExit
        It failed; with the end of its log and where the whole of it is.
    """
    logs = CACHE / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    path = logs / f"{log}.log"
    with path.open("w") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**environment(), **(env or {})},
            start_new_session=True,
            cwd=CACHE,
        )
        with PeakMemory(process.pid) as memory:
            try:
                output, _ = process.communicate(timeout=_TIMEOUT_SECONDS)
            except BaseException:
                _end(process)
                raise
        seconds = time.perf_counter() - began
    found = [line[len(_MARK) :] for line in output.splitlines() if line.startswith(_MARK)]
    if process.returncode or not found:
        end = "\n".join(path.read_text(errors="replace").splitlines()[-15:])
        raise SystemExit(f"{log} failed with code {process.returncode}:\n{end}\n(all of it: {path})")
    return Run(seconds, memory.peak_mb, json.loads(found[-1]))


def say(result: Mapping[str, Any]) -> None:
    """Print what an engine's process measured."""
    print(_MARK + json.dumps(result), flush=True)


def given_job() -> dict[str, Any]:
    """Return the job that an engine's process got."""
    return json.loads(sys.argv[1])


def assert_equal(engine: str, result: pa.Table, expected: pa.Table) -> None:
    """Stop unless an engine's result is exactly what it must be; both are sorted by key.

    Raises
    ------
    SystemExit
        Saying where they differ.
    """
    got = result.select(expected.schema.names).cast(expected.schema).combine_chunks()
    if got.equals(expected.combine_chunks()):
        return
    if got.num_rows != expected.num_rows:
        raise SystemExit(f"{engine}: {got.num_rows:,} rows, expected {expected.num_rows:,}")
    for name in expected.schema.names:
        for place, (one, other) in enumerate(zip(got[name].to_pylist(), expected[name].to_pylist(), strict=True)):
            if one != other:
                raise SystemExit(
                    f"{engine}: row {place}: {got.slice(place, 1).to_pylist()}, expected {other!r} in {name}"
                )
    raise SystemExit(f"{engine}: the result differs")


def _keys(row: Mapping[str, Any]) -> str:
    """Return the number of keys as text, where it distinguishes rows of the report."""
    return f", {row['keys']:,} keys" if "keys" in row else ""


def _same(one: Measured, other: Measured) -> bool:
    return (one.work, one.size, one.keys) == (other.work, other.size, other.keys)


def _end(process: subprocess.Popen[str]) -> None:
    """End the process's whole session."""
    try:
        os.killpg(process.pid, 15)
        process.wait(20)
    except ProcessLookupError:
        return
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
