"""``upstream check`` and ``upstream repair``."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console


def print_check(path: str, source: str | None, storage: Mapping[str, str]) -> bool:
    """Check a table, print the findings, and return whether it is in order."""
    from ..sink.admin.check import check_table

    report = check_table(path, storage=storage, source=source)
    say = _console()
    say.print(
        f"{report.location}, version {report.version}: {report.rows:,} rows in {report.buckets} buckets, "
        f"{report.files:,} files; "
        f"{report.tombstones:,} deletions are remembered"
    )
    log = report.log
    checkpoint = "no checkpoint yet" if log.checkpoint is None else f"a checkpoint of version {log.checkpoint}"
    say.print(f"log: from version {log.first} on, {checkpoint}, {log.since:,} to be read after it", style="dim")
    if report.compared is not None:
        say.print(f"source: {report.compared:,} keys compared", style="dim")
    if report.wanted_buckets is not None:
        say.print(
            f"outgrown: {report.rows // report.buckets:,} rows a bucket, each of which a batch now and then rewrites; "
            f"`upstream rebucket {path} {report.wanted_buckets}` makes them smaller",
            style="yellow",
        )
    for finding in report.findings:
        say.print(f"wrong: {finding.text}" + ("" if finding.mends else "; repair does not mend this"), style="red")
    if report.healthy:
        compared = "" if report.compared is None else ", nothing in the source is newer"
        say.print(
            f"right: one row per key, each in its bucket; files, deletions, log and counts as recorded{compared}",
            style="green",
        )
    elif any(finding.mends for finding in report.findings):
        say.print(f"`upstream repair {path} --dry-run` says what can be mended")
    return report.healthy


def print_repair(
    path: str, storage: Mapping[str, str], *, dry_run: bool, orphans: bool, retention_us: int, force: bool = False
) -> bool:
    """Repair a table, print the changes, and return whether the table is then in order."""
    from ..sink.admin.repair import repair_table

    repairs = repair_table(
        path, storage=storage, dry_run=dry_run, orphans=orphans, retention_us=retention_us, force=force
    )
    say = _console()
    for text in repairs.done:
        say.print(("would be done: " if dry_run else "done: ") + text)
    for text in repairs.left:
        say.print("left: " + text, style="red")
    if not repairs.done and not repairs.left:
        say.print("nothing to mend", style="green")
    else:
        say.print(f"rows: {repairs.rows_before:,} before, {repairs.rows_after:,} after")
        say.print(f"{repairs.location} is at version {repairs.version}", style="dim")
        if repairs.version != repairs.version_before:
            back = f"RESTORE TABLE delta.`{repairs.location}` TO VERSION AS OF {repairs.version_before}"
            say.print(f"to go back to how it was: {back}", style="dim")
    return not repairs.left


def _console() -> Console:
    return Console(highlight=False, markup=False, soft_wrap=True)
