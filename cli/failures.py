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
from ..conf.jvm import end_of_jvm

FAILED = 1
MISUSED = 2
INTERRUPTED = 130
TERMINATED = 143

_PYTHON = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt): .+$", re.MULTILINE)
_JAVA = re.compile(r"(?:Caused by: )?(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): (.+)")


# The end of a connection, in the words of several systems.
_CLOSED = re.compile(r"Broken pipe|Connection reset|EOFException|terminated with exception: null")
_OUT_OF_MEMORY = "If the system ran out of memory, its log names the {}."
_RESUMES = "Run the command again: it resumes, and no row is lost."
_PATIENCE_S = 5


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
    if (death := _death(error)) is not None:
        return CommandFailure(death, FAILED, _story(error))
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


def hide_traces() -> None:
    """Keep Py4J from printing a traceback if Ctrl-C comes in a call to the JVM or in a batch, or if the JVM dies."""
    from pyspark import accumulators

    logging.getLogger().addFilter(_is_wanted)
    logging.getLogger("py4j.clientserver").addFilter(_is_wanted)
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        setattr(server, "handle_error", lambda *_: None)  # noqa: B010 the connection ends with the JVM


def _is_wanted(record: logging.LogRecord) -> bool:
    if record.msg in ("KeyboardInterrupt while sending command.", "Exception while sending command."):
        return False
    error = (record.exc_info or (None,) * 2)[1]
    return not _is_cut(error) and "java.lang.InterruptedException" not in str(error)


def _is_cut(error: BaseException | None) -> bool:
    """Return whether a connection to the JVM has ended."""
    return isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"


def _death(error: BaseException) -> str | None:
    """Return which of Spark's processes has died, if the error comes from that, and what to do."""
    # What was to be read as JSON has no end either.
    end = end_of_jvm(_PATIENCE_S if _is_cut(error) or isinstance(error, (EOFError, ValueError)) else 0)
    if end is not None:
        return f"Spark's JVM has died: {end}. {_OUT_OF_MEMORY.format('JVM')} {_RESUMES}"
    text = str(error)
    if "Python worker exited unexpectedly" in text:
        return (
            "A Python worker of Spark has died in each attempt at a task. If a function of yours runs there, it may "
            f"have crashed or ended its process. {_OUT_OF_MEMORY.format('worker')} {_RESUMES}"
        )
    if "PythonStreamingSourceRunner" in getattr(error, "_stackTrace", "") and _CLOSED.search(text):
        return f"The Python process of Spark that plans a source's batches has died. {_RESUMES}"
    return None


def _story(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
