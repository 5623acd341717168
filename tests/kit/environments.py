"""Environments beside the tested one, which the first test that needs them makes."""

import fcntl
from functools import cache
from pathlib import Path

from .places import ROOT
from .programs import run


@cache
def environment(name: str) -> Path:
    """Return the Python of an environment below `.cache`."""
    folder = ROOT / ".cache" / name
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the same run may need it too
        done = run("make", "--no-print-directory", f".cache/{name}/.locked", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin" / "python"
