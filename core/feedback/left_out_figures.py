"""Writes of figures whose failure does not end the job."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...conf.errors import UpstreamError
from ...storage.folder import TableFolder

__all__ = ["LeftOutFigures"]


class LeftOutFigures:
    """A counter of failed writes in a row, which logs a warning at the first one and when writing works again.

    `what` names the figures in the warnings, such as "the report of the queries".
    """

    def __init__(self, what: str, folder: TableFolder, log: logging.Logger) -> None:
        self.count = 0
        self._what = what
        self._folder = folder
        self._log = log

    def attempt(self, write: Callable[[], object]) -> bool:
        """Call `write`, and return whether it succeeded."""
        try:
            write()
        except (OSError, UpstreamError) as error:
            if not self.count:
                self._log.warning(
                    "%s cannot be written at %s: %s The job goes on, and catches up when this is put right; until then "
                    "further failures are counted alone",
                    self._what,
                    self._folder.location,
                    _sentence(self._folder.masked(error)),
                )
            self.count += 1
            return False
        if self.count:
            self._log.warning(
                "%s is written again at %s. It was left out %d times; the job has caught up",
                self._what,
                self._folder.location,
                self.count,
            )
        self.count = 0
        return True


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
