"""Files that are there whole or not at all, however the process ends that writes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pyarrow import fs

__all__ = ["write_whole"]

_STAGED = ".staged"


def write_whole(folder: str, name: str, write: Callable[[str, fs.FileSystem], None]) -> None:
    """Put a file in the place of the last one of that name.

    What earlier writers of the same name left unfinished when they were killed is taken away, so that it cannot gather for years.

    Parameters
    ----------
    folder : str
        A folder, or a URI of one. Made if it is not there.
    name : str
    write : callable
        Writes the contents to a path on a file system. Tasks that are tried again must write the same.
    """
    if "://" in folder:
        system, root = fs.FileSystem.from_uri(folder)
        system.create_dir(root, recursive=True)
        write(f"{root}/{name}", system)  # an object store replaces a whole object or nothing
        return
    # In a folder of its own: to look for what was left is then cheap, however many files there are beside.
    staged = os.path.join(folder, _STAGED)
    os.makedirs(staged, exist_ok=True)
    mine = f"{name}.{os.getpid()}"
    write(os.path.join(staged, mine), fs.LocalFileSystem())
    os.replace(os.path.join(staged, mine), os.path.join(folder, name))
    for other in os.listdir(staged):
        if other.rpartition(".")[0] == name:
            Path(staged, other).unlink(missing_ok=True)  # unless another attempt at the same task was quicker
