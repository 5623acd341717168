"""Files in a table's folder that no version within the retention needs: left by processes that died, or replaced long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...delta_format.deletion_vectors import VECTORS
from ..table.tombstones import FOLDER

if TYPE_CHECKING:
    from ..table.contents import Contents

__all__ = ["orphans_of"]

_HOUR_US = 3_600_000_000


def orphans_of(contents: Contents, before_us: int) -> list[str]:
    """Paths of files last changed before a moment, relative to the table, sorted.

    Data files as VACUUM finds them; and those of deletions, which it passes over.
    """
    from ...conf.clock import now_us

    hours = max(-(-(now_us() - before_us) // _HOUR_US), 0)
    found = contents.table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
    held = contents.snapshot.named()
    # Which vectors a version within the retention needs is known to maintenance, not to VACUUM.
    found = [each for each in found if not each.startswith(f"{VECTORS}/")]
    return sorted({*found, *_of_deletions(contents, FOLDER, before_us)} - held)


def _of_deletions(contents: Contents, folder: str, before_us: int) -> list[str]:
    found: list[str] = []
    for each in contents.target.folder.listing(folder):
        if each.is_folder:
            found += _of_deletions(contents, f"{folder}{each.name}/", before_us)
        elif each.modified_us < before_us:
            found.append(folder + each.name)
    return found
