"""Errors as one sentence for the user, an exit code and a log."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from ..conf.errors import OptionError, QueryRefusedError, SchemaError, UpstreamError, inner_error

FAILED = 1
MISUSED = 2
INTERRUPTED = 130
TERMINATED = 143

_PYTHON = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt): .+$", re.MULTILINE)
_JAVA = re.compile(r"(?:Caused by: )?(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): (.+)")


class CommandFailure(Exception):  # noqa: N818 a message for the user, not an error of ours
    """An error with one sentence for the user, the process's exit code, and details for the log, if any."""

    def __init__(self, sentence: str, code: int = FAILED, details: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code
        self.details = details


def failure_of(error: BaseException) -> CommandFailure:
    """Return the failure to show for an error: UpStream's own message in it, if any, else its most informative line."""
    if isinstance(error, CommandFailure):
        return error
    ours = error if isinstance(error, UpstreamError) else inner_error(error)
    if ours is not None:
        misused = isinstance(ours, (OptionError, QueryRefusedError, SchemaError))
        return CommandFailure(
            str(ours), MISUSED if misused else FAILED, "" if ours is error and misused else _story(error)
        )
    text = str(error)
    lines = _PYTHON.findall(text) or _JAVA.findall(text)
    telling = lines[-1] if lines else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return CommandFailure(telling.strip()[:500], FAILED, _story(error))


def record(failure: CommandFailure, log: Path) -> bool:
    """Append the failure's details to the log; return False if it has none."""
    if not failure.details:
        return False
    with open(log, "a", encoding="utf-8") as file:
        file.write(failure.details.rstrip() + "\n")
    return True


def with_log(chosen: Path | None, work: Callable[[Path], int]) -> int:
    """Run work that writes a log, and return its exit code; a Failure names the log if the details are there.

    By default the log is a temporary file of this user alone. It is removed if it is empty or the work succeeds.
    """
    log = chosen or _temporary_log()
    try:
        code = work(log)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        failure = failure_of(error)
        if record(failure, log):
            raise CommandFailure(f"{failure.sentence}\nDetails: {log}", failure.code) from error
        raise failure from error
    finally:
        if chosen is None:
            with contextlib.suppress(FileNotFoundError):
                if log.stat().st_size == 0:
                    log.unlink()
    if code == 0 and chosen is None:
        log.unlink(missing_ok=True)
    return code


def _temporary_log() -> Path:
    """Create a log whose name no other user can have taken, or made a link."""
    handle, name = tempfile.mkstemp(prefix=f"upstream-{time.strftime('%Y%m%d-%H%M%S')}-", suffix=".log")
    os.close(handle)
    return Path(name)


def hide_interrupts() -> None:
    """Keep Py4J from printing a traceback if Ctrl-C comes in the middle of a call to the JVM, or of a batch."""
    logging.getLogger().addFilter(_is_no_interrupt)
    logging.getLogger("py4j.clientserver").addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    if record.msg == "KeyboardInterrupt while sending command.":
        return False
    return record.exc_info is None or "java.lang.InterruptedException" not in str((record.exc_info or (None,) * 2)[1])


def _story(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
