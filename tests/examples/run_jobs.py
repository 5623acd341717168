"""Run example jobs one after another in one process and one Spark session: each as its own program would run.

run_jobs.py JOBS: a JSON array of scripts with their arguments; prints a JSON array of what each printed, or of its
traceback
"""

import contextlib
import io
import json
import runpy
import sys
import traceback

from pyspark.sql import SparkSession


def run(script: str, *arguments: str) -> tuple[bool, str]:
    """Run a script as the main program; whether it came to its end, and what it printed."""
    sys.argv = [script, *arguments]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(script, run_name="__main__")
    except Exception:
        return False, traceback.format_exc()
    return True, printed.getvalue()


if __name__ == "__main__":
    stop = SparkSession.stop
    SparkSession.stop = lambda _: None
    print(json.dumps([run(*job) for job in json.loads(sys.argv[1])]))
    stop(SparkSession.active())
