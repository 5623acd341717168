"""Events of commits for browsers, by one reader however many browsers there are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, StreamingResponse

from ..conf.errors import UpstreamError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ..sink.figures.summary import CommitSummary
    from .watch import Watch, WatchedTable

__all__ = ["Broadcast", "reading"]

_POLL_S = 0.25
_SEARCH_TURNS, _FIRST_TURNS = 40, 4  # with tables, and without any
_BEAT_S = 15.0
_CLIENTS = 256
# The least time between two verdicts on a table: after a commit, and without one.
_VERDICT_S, _IDLE_VERDICT_S = 0.9, 2.0
_WAITING = 1_000

_log = logging.getLogger(__name__)


class Broadcast:
    """Reads the watch in the background, and hands each commit, with the table's `verdict`, to the table's clients."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._clients: dict[asyncio.Queue[tuple[int | None, str] | None], str] = {}
        self.verdict: Callable[[WatchedTable], Mapping[str, Any]] | None = None
        self._judged_s: dict[str, float] = {}
        self._changed: set[str] = set()

    async def run(self) -> None:
        """Read until cancelled."""
        watch, turn = self._watch, 0
        while True:
            try:
                if turn % (_SEARCH_TURNS if watch.tables() else _FIRST_TURNS) == 0:
                    await run_in_threadpool(watch.search)
                found = await run_in_threadpool(watch.refresh, set(self._clients.values()))
            except (OSError, ValueError, UpstreamError) as error:  # a store that is away
                _log.warning("the folders of tables cannot be read now: %s", error)
                found = {}
            for name, commits in found.items():
                self._publish(name, commits)
            self._changed |= found.keys()
            await self._judge()
            turn += 1
            await asyncio.sleep(_POLL_S)

    async def _judge(self) -> None:
        now_s = time.monotonic()
        judge = self.verdict
        if judge is None:
            return
        for name in set(self._clients.values()):
            waited_s = now_s - self._judged_s.get(name, 0.0)
            if waited_s < (_VERDICT_S if name in self._changed else _IDLE_VERDICT_S):
                continue
            self._judged_s[name] = now_s
            self._changed.discard(name)
            with contextlib.suppress(OSError, ValueError, UpstreamError):  # as above
                found = await run_in_threadpool(judge, self._watch.table(name))
                self._send(name, [(None, f"event: verdict\ndata: {json.dumps(found, default=str)}\n\n")])

    def _publish(self, name: str, commits: Iterable[tuple[int, CommitSummary]]) -> None:
        self._send(name, [(version, _event(version, summary)) for version, summary in commits])

    def _send(self, name: str, texts: Sequence[tuple[int | None, str]]) -> None:
        for queue, table in list(self._clients.items()):
            if table != name:
                continue
            if queue.qsize() + len(texts) > _WAITING:  # the browser comes back with its last version
                del self._clients[queue]
                queue.put_nowait(None)
                continue
            for each in texts:
                queue.put_nowait(each)

    async def stream(self, table: str, after: int | None) -> AsyncIterator[str]:
        """Yield events of a table's commits after a version, by default from now on; never one twice."""
        queue: asyncio.Queue[tuple[int | None, str] | None] = asyncio.Queue()
        self._clients[queue] = table
        try:
            yield "retry: 500\n\n"
            sent = -1
            watched = self._watch.table(table)
            missed = [] if after is None else await run_in_threadpool(watched.between, after)
            for version, summary in missed:
                sent = version
                yield _event(version, summary)
            while True:
                try:
                    item = await asyncio.wait_for(queue.get(), _BEAT_S)
                except asyncio.TimeoutError:
                    yield ": still here\n\n"
                    continue
                if item is None:
                    return
                if item[0] is None:
                    yield item[1]
                elif item[0] > sent:
                    sent = item[0]
                    yield item[1]
        finally:
            self._clients.pop(queue, None)

    @property
    def is_full(self) -> bool:
        return len(self._clients) >= _CLIENTS

    async def events(self, request: Request) -> Response:
        """Answer with the stream of a table's commits; ``Last-Event-ID`` is the version from which it resumes."""
        if self.is_full:
            return JSONResponse({"error": f"{_CLIENTS} pages are open", "expected": "", "hint": "close some"}, 503)
        table = (await run_in_threadpool(self._watch.shown, request.query_params.get("table"))).name
        last = request.headers.get("last-event-id") or request.query_params.get("after", "")
        after = int(last) if last.isdigit() and len(last) < 19 else None
        return StreamingResponse(self.stream(table, after), media_type="text/event-stream")


def _event(version: int, summary: CommitSummary) -> str:
    data = json.dumps({"version": version, **summary.to_json()}, default=str)
    return f"id: {version}\nevent: commit\ndata: {data}\n\n"


@contextlib.asynccontextmanager
async def reading(feed: Broadcast) -> AsyncGenerator[None]:
    """Read the watch as long as the server runs."""
    task = asyncio.create_task(feed.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
