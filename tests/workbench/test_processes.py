"""The process that serves the workbench of a job ends with the job, and the job goes on without it."""

import os
import signal
import subprocess
import sys
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from kit.waiting import wait_for

import upstream as us
from upstream.conf.errors import OptionError
from upstream.workbench.processes import listen

JOB = """
import os, sys
import upstream as us
workbench = us.ui(sys.argv[1])
forked = os.fork()  # holds all that the job holds, for longer
if not forked:
    sys.stdin.read()
    os._exit(0)
print(workbench.address, flush=True)
sys.stdin.read()
"""


def is_refused(address):
    try:
        urlopen(address.partition("?")[0], timeout=60)
    except HTTPError:
        return False
    except URLError as error:
        return "refused" in str(error)
    except ConnectionError:
        return False


def sockets_that_listen():
    own = set()
    for each in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{each}"))
        except FileNotFoundError:
            continue
    with open("/proc/self/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"} & own


def test_a_port_that_is_taken_is_refused_with_words():
    with listen("127.0.0.1", 0) as taken, pytest.raises(OptionError, match="choose another port"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_a_job_listens_nowhere_and_outlives_the_process_that_serves(tmp_path, caplog):
    before = sockets_that_listen()
    with us.ui(tmp_path) as workbench:
        assert not is_refused(workbench.address)
        assert sockets_that_listen() == before
        os.kill(workbench.pid, signal.SIGKILL)
        wait_for(lambda: "The query continues" in caplog.text, what="the warning")
        assert is_refused(workbench.address)


def test_the_process_that_serves_ends_with_a_job_that_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", JOB, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        address = job.stdout.readline()
        assert not is_refused(address)
        job.kill()
        wait_for(lambda: is_refused(address), what="the end of the server")
