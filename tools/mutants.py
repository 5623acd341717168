"""Change the kernels' lines one at a time, and count the changes that no test without Spark notices.

``make mutants`` runs all kernels, for a night; ``make mutants KERNELS="newest panes"`` some of them, ``KERNELS="panes
--sample 100 --seed 1"`` some of their mutants. ``--again`` runs only what lived in the run before, and what is new. The
exit code is 1 where fewer than 95 % of a kernel's mutants are killed. Survivors and why they may live: tests/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".cache" / "mutants-work"
PACKAGES = subprocess.check_output(["sh", str(ROOT / "tools" / "packages.sh")], text=True).split()
AIM = 0.95
# What a raise says is for a person to read, and so is what is logged.
UNCHANGED = [r"^\s*(raise |return \w*Error\()", r"^\s*(_log|_logger|log|logger|logging)\."]
STARTING = ("spark", "long", "fault", "broker", "server", "cluster", "benchmark")
ARGUMENTS = [
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "-p",
    "few_and_fast",
    "-m",
    " and ".join(f"not {mark}" for mark in STARTING),
]
# mutmut's exit codes; any other one, a crash or an end by the time limit, is a mutant that was noticed.
LIVED = (0, 5, 33, None)  # no test failed; none was found; none runs the line; it was not run

# A kernel: the modules that are changed, and the tests that should notice.
KERNELS: dict[str, tuple[list[str], list[str]]] = {
    "newest": (["core/rows/newest.py"], ["tests/core/rows/test_newest.py"]),
    "progress": (
        ["core/watermark/policies.py"],
        ["tests/core/watermark/test_policies.py"],
    ),
    "vectors": (
        ["delta_format/deletion_vectors.py"],
        ["tests/delta_format/test_deletion_vectors.py"],
    ),
    "panes": (
        ["operators/windows/panes.py", "operators/windows/kinds.py", "core/rows/exact_integers.py"],
        [
            "tests/operators/windows/test_panes.py",
            "tests/operators/windows/test_kinds.py",
            "tests/core/rows/test_exact_integers.py",
        ],
    ),
    "windows": (
        [
            "operators/windows/shards/shard.py",
            "operators/windows/shards/kept_state.py",
            "operators/windows/emission.py",
        ],
        [
            "tests/operators/windows/test_emission.py",
            "tests/operators/windows/shards/test_shard.py",
            "tests/operators/windows/test_operator.py",
            "tests/operators/windows/shards/test_kept_state.py",
            "tests/operators/windows/shards/test_results.py",
            # Hundreds of batches.
            "--deselect=tests/operators/windows/shards/test_shard.py::test_a_batch_reads_and_writes_what_comes_and_goes",
        ],
    ),
    "reorder": (
        ["operators/reorder/shard.py"],
        ["tests/operators/reorder/test_shard.py"],
    ),
    "queue": (
        ["operators/queue/queue.py", "operators/queue/cells.py", "operators/queue/monitor.py"],
        ["tests/operators/queue"],
    ),
    "merge": (
        [f"sink/merge/{name}.py" for name in ("newest_rows", "task_rows", "batch_rows")],
        [
            f"tests/sink/merge/test_{name}.py"
            for name in (
                "newest_rows",
                "task_rows",
                "batch_rows",
                "merge_by_table",
            )
        ],
    ),
    "tombstones": (["sink/table/tombstones.py"], ["tests/sink/table/test_tombstone_list.py"]),
    "maintenance": (["sink/spec/maintenance_rules.py"], ["tests/sink/spec/test_maintenance_rules.py"]),
}


# Most mutants die in a test that takes a millisecond.
PLUGIN = """
import json
from pathlib import Path


def pytest_collection_modifyitems(items):
    known = Path("mutmut-stats.json")
    took = json.loads(known.read_text())["duration_by_test"] if known.exists() else {}
    items.sort(key=lambda item: took.get(item.nodeid, 0))
"""


def config_of(kernel: str) -> str:
    """Return mutmut's configuration. If the tests or their arguments change, mutmut discards all results."""
    modules, tests = KERNELS[kernel]
    lines = [
        "[tool.mutmut]",
        'source_paths = ["src"]',
        f"only_mutate = {json.dumps(['src/upstream/' + module for module in modules])}",
        f"do_not_mutate_patterns = {json.dumps(UNCHANGED)}",
        f"pytest_add_cli_args_test_selection = {json.dumps(tests)}",
        f"pytest_add_cli_args = {json.dumps(ARGUMENTS)}",
        # Polars' and Arrow's threads do not survive a fork.
        'process_isolation = "forkserver"',
        # A loop without end is stopped after (its tests' time + 1 s) times this.
        "timeout_multiplier = 8.0",
        "track_dependencies = false",
        "use_git_change_detection = false",
    ]
    return "\n".join(lines) + "\n"


def stage(kernel: str, again: bool) -> Path:
    """Lay the project out as mutmut expects it: a folder of sources that holds the package, and tests beside it."""
    work = WORK / kernel
    for old in (work / "src", work / "tests", work / "mutants" / "tests") if again else (work,):
        shutil.rmtree(old, ignore_errors=True)
    package = work / "src" / "upstream"
    package.mkdir(parents=True)
    for name in PACKAGES:
        home = work / "src" if name == "pyspark_upstream" else package
        shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "py.typed"):
        shutil.copy(ROOT / name, package / name)
    (work / "src" / "few_and_fast.py").write_text(PLUGIN)
    shutil.copytree(ROOT / "tests", work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (work / "pyproject.toml").write_text(config_of(kernel))
    return work


def ended(work: Path) -> dict[str, int | None]:
    """Return each mutant's exit code, by name; None for a mutant that did not run."""
    codes: dict[str, int | None] = {}
    for meta in sorted((work / "mutants" / "src").rglob("*.py.meta")):
        codes |= json.loads(meta.read_text())["exit_code_by_key"]
    return codes


def run(kernel: str, sample: int | None, seed: int, again: bool, children: int) -> tuple[int, int, list[str]]:
    """Run a kernel's mutants, or some; how many there are, how many were run, and the survivors' names."""
    config = WORK / kernel / "pyproject.toml"
    again = again and config.exists() and config.read_text() == config_of(kernel)
    work = stage(kernel, again)
    environment = {**os.environ, "UPSTREAM_EXAMPLES": "mutants", "POLARS_MAX_THREADS": "1"}

    def mutmut(*arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "mutmut", *arguments], cwd=work, env=environment, check=False)

    names: list[str] = []
    if again or sample is not None:
        # The names are there once the mutants are made; mutmut has no command for this step alone.
        make = "import mutmut.__main__ as m; m.copy_src_dir(); m.copy_also_copy_files(); m.create_mutants(1)"
        (work / "mutants").mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-c", make], cwd=work, env=environment, check=True, stdout=subprocess.DEVNULL)
    made = ended(work)
    chosen = set(made) if sample is None else set(random.Random(seed).sample(sorted(made), min(sample, len(made))))
    if again or sample is not None:
        names = sorted(name for name in chosen if made[name] in LIVED)
    if names or not (again or sample is not None):
        mutmut("run", "--max-children", str(children), *names)
    codes = ended(work)
    tried = chosen or set(codes)
    return len(codes), len(tried), sorted(name for name in tried if codes[name] in LIVED)


def main(arguments: list[str]) -> int:
    """Run some kernels, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", help=f"change only these: {', '.join(KERNELS)} [default: all]")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="run at most N mutants of each kernel, chosen at random"
    )
    parser.add_argument("--seed", type=int, default=1, help="choose the N by this seed [default: 1]")
    parser.add_argument("--again", action="store_true", help="run the survivors of the previous run, and new ones")
    parser.add_argument(
        "--children", type=int, default=2, metavar="N", help="run this many processes at a time [default: 2]"
    )
    parser.add_argument("--show", action="store_true", help="show each survivor's change")
    given = parser.parse_args(arguments)
    unknown = set(given.kernels) - set(KERNELS)
    if unknown:
        print(f"no such kernel: {', '.join(sorted(unknown))}; there are {', '.join(KERNELS)}", file=sys.stderr)
        return 2
    failed = False
    for kernel in given.kernels or KERNELS:
        total, tried, survivors = run(kernel, given.sample, given.seed, given.again, given.children)
        killed = tried - len(survivors)
        whole = "all" if tried == total else f"a sample of {total}"
        print(f"{kernel}: {killed} of {tried} killed ({killed / max(tried, 1):.1%}), {whole}", flush=True)
        for name in survivors:
            print(f"  survived: {name}", flush=True)
            if given.show:
                subprocess.run([sys.executable, "-m", "mutmut", "show", name], cwd=WORK / kernel, check=False)
        failed = failed or not tried or killed < AIM * tried
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
