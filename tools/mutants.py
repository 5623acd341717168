"""Change the kernels' lines one at a time, and count the changes that no test without Spark notices.

``make mutants`` runs all kernels, for a night; ``make mutants KERNELS="newest panes"`` some of them. The exit code is 1 where fewer than
95 % of a kernel's mutants are killed. Survivors and why they may live: docs/mutants.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".cache" / "mutants-work"
PACKAGES = ("cli", "conf", "datasource", "frames", "operators", "pyspark_upstream", "sink")
AIM = 0.95

# A kernel: the modules that are changed, and the tests that should notice.
KERNELS: dict[str, tuple[list[str], list[str]]] = {
    "newest": (["frames/newest.py"], ["tests/frames/test_newest.py", "tests/datasource/test_account.py"]),
    "progress": (
        ["frames/progress.py", "frames/lags.py", "frames/skew.py"],
        ["tests/frames/test_progress.py", "tests/frames/test_adaptive_bound.py", "tests/datasource/test_planner.py"],
    ),
    "vectors": (
        ["frames/deletion_vectors.py"],
        ["tests/frames/test_deletion_vectors.py"],
    ),
    "panes": (
        ["operators/windows/panes.py", "operators/windows/kinds.py", "operators/windows/exact.py"],
        ["tests/operators/windows"],
    ),
    "windows": (
        ["operators/shards/window_shard.py", "operators/shards/window_kept.py", "operators/windows/recent.py"],
        ["tests/operators/shards/test_window_shard.py", "tests/operators/shards/test_window_eager.py"],
    ),
    "reorder": (
        ["operators/reorder/shard.py", "operators/reorder/repeats.py"],
        ["tests/operators/reorder/test_reorder_shard.py"],
    ),
    "queue": (
        ["operators/queue/queue.py", "operators/queue/cells.py", "operators/queue/monitor.py"],
        ["tests/operators/test_queue.py", "tests/operators/shards/test_queue_shard.py"],
    ),
    "merge": (
        ["sink/merge.py"],
        ["tests/sink/test_merge.py", "tests/sink/test_keeping.py", "tests/sink/test_engines.py"],
    ),
    "tombstones": (["sink/tombstones.py"], ["tests/sink/test_tombstones.py"]),
    "maintenance": (["sink/maintenance.py"], ["tests/sink/test_maintenance.py", "tests/sink/test_upkeep.py"]),
}


def stage(kernel: str) -> None:
    """Lay the project out as mutmut expects it: a folder of sources that holds the package, and tests beside it."""
    shutil.rmtree(WORK, ignore_errors=True)
    package = WORK / "src" / "upstream"
    package.mkdir(parents=True)
    for name in PACKAGES:
        home = WORK / "src" if name == "pyspark_upstream" else package
        shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "py.typed"):
        shutil.copy(ROOT / name, package / name)
    shutil.copytree(ROOT / "tests", WORK / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    modules, tests = KERNELS[kernel]
    lines = [
        "[tool.mutmut]",
        'source_paths = ["src"]',
        f"only_mutate = {json.dumps(['src/upstream/' + module for module in modules])}",
        f"pytest_add_cli_args_test_selection = {json.dumps(tests)}",
        'pytest_add_cli_args = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not spark and not long and not fault"]',
        # Polars' and Arrow's threads do not survive a fork.
        'process_isolation = "forkserver"',
        "track_dependencies = false",
        "use_git_change_detection = false",
    ]
    (WORK / "pyproject.toml").write_text("\n".join(lines) + "\n")


def run(kernel: str) -> tuple[Counter[str], list[str]]:
    """Run a kernel's mutants; how many of them ended how, and the survivors' names."""
    stage(kernel)
    environment = {**os.environ, "UPSTREAM_EXAMPLES": "same", "POLARS_MAX_THREADS": "1"}
    mutmut = [sys.executable, "-m", "mutmut"]
    subprocess.run([*mutmut, "run", "--max-children", "2"], cwd=WORK, env=environment, check=False)
    printed = subprocess.run(
        [*mutmut, "results", "--all", "true"], cwd=WORK, env=environment, check=True, capture_output=True, text=True
    ).stdout
    pairs = [line.strip().rsplit(": ", 1) for line in printed.splitlines() if ": " in line]
    ended = Counter(pair[1] for pair in pairs)
    return ended, [pair[0] for pair in pairs if pair[1] in ("survived", "no tests", "suspicious")]


def main(names: list[str]) -> int:
    """Run some kernels, or all."""
    unknown = set(names) - set(KERNELS)
    if unknown:
        print(f"no such kernel: {', '.join(sorted(unknown))}; there are {', '.join(KERNELS)}", file=sys.stderr)
        return 2
    failed = False
    for kernel in names or KERNELS:
        ended, survivors = run(kernel)
        total = sum(ended.values())
        killed = total - len(survivors)
        print(f"{kernel}: {killed} of {total} killed ({killed / max(total, 1):.1%}), {dict(ended)}")
        for name in survivors:
            print(f"  survived: {name}")
        failed = failed or not total or killed < AIM * total
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
