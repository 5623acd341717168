"""Takers of one lease, step by step in any order: one at a time has it."""

import dataclasses
import itertools
import json
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from upstream.conf.errors import CheckpointError
from upstream.conf.process_identity import Process
from upstream.storage.folder import TableFolder
from upstream.storage.lease import Lease, LeaseFolder

S = 1_000_000
TERM = 60 * S
STALE = 75 * S
ELSEWHERE = Process("elsewhere", "another machine", 7, 7)


class Place(LeaseFolder):
    """A lease whose steps on the folder a test interleaves."""

    def __init__(self, folder: TableFolder, step: Callable[[], None] = lambda: None) -> None:
        super().__init__(folder, "lease", exclusive=True)
        self._step = step

    def held(self, lease: Lease, now_us: int) -> CheckpointError:
        return CheckpointError(f"held by {lease.holder}", expected="nobody")

    def unwritable(self, problem: str) -> CheckpointError:
        return CheckpointError(f"unwritable: {problem}", expected="room")

    def _newest(self) -> tuple[int, Lease | None]:
        self._step()
        return super()._newest()

    def _put(self, number: int, lease: Lease) -> bool:
        self._step()
        return super()._put(number, lease)

    def _write(self, number: int, lease: Lease) -> None:
        self._step()
        super()._write(number, lease)

    def _numbers(self) -> list[int]:
        self._step()
        return super()._numbers()


class Turns:
    """Lets threads go on one after the other, each some steps, in the order that a test draws."""

    def __init__(self, works: Sequence[Callable[[Callable[[], None]], None]]) -> None:
        self._go = [threading.Semaphore(0) for _ in works]
        self._waits = [threading.Semaphore(0) for _ in works]
        self._done = [False] * len(works)
        self._threads = [threading.Thread(target=self._run, args=each) for each in enumerate(works)]
        for each in self._threads:
            each.start()

    def _run(self, number: int, work: Callable[[Callable[[], None]], None]) -> None:
        def step() -> None:
            self._waits[number].release()
            self._go[number].acquire()

        step()
        try:
            work(step)
        finally:
            self._done[number] = True
            self._waits[number].release()

    def run(self, order: Sequence[tuple[int, int]]) -> None:
        for each in self._waits:
            each.acquire()
        numbers = range(len(self._go))
        rest = [number for _ in range(99) for number in numbers]
        for number in [*itertools.chain(*([number] * steps for number, steps in order)), *rest]:
            if not self._done[number]:
                self._go[number].release()
                self._waits[number].acquire()
        for each in self._threads:
            each.join()


def of(holder: str, at: int) -> Lease:
    return Lease(holder, ELSEWHERE, at, at, TERM)


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("goes", [(), (1,), (0, 2)])
def test_of_some_that_take_it_at_once_one_has_it(tmp_path, stale, goes):
    """Each is interrupted after each of its steps; some release it at once, and then a later one may have it."""
    for one, other in itertools.product(range(10), range(10)):
        place = tmp_path / f"{one} {other}"
        place.mkdir()
        race(TableFolder(str(place)), [(0, one), (1, other), (2, 99), (1, 99)], goes, stale=stale)


def race(folder: TableFolder, order: Sequence[tuple[int, int]], goes: Collection[int], *, stale: bool) -> None:
    if stale:
        Place(folder).hold("old", ELSEWHERE, TERM, 0)
    has: list[str] = []
    most: list[int] = [0]

    def work(name: str, *, releases: bool) -> Callable[[Callable[[], None]], None]:
        def take(step: Callable[[], None]) -> None:
            place = Place(folder, step)
            try:
                place.hold(name, ELSEWHERE, TERM, STALE)
            except CheckpointError:
                return
            has.append(name)
            most[0] = max(most[0], len(has))
            if releases:
                has.remove(name)
                assert place.release(name) is not None

        return take

    Turns([work(f"taker {number}", releases=number in goes) for number in range(3)]).run(order)
    assert most == [1]
    found = Place(folder).read()
    assert ([] if found is None else [found.holder]) == has


@pytest.mark.parametrize("one", range(10))
def test_a_holder_that_comes_late_does_not_take_back_what_another_took_over(tmp_path, one):
    folder = TableFolder(str(tmp_path))
    Place(folder).hold("late", ELSEWHERE, TERM, 0)
    took: list[str] = []

    def renews(step: Callable[[], None]) -> None:
        try:
            Place(folder, step).hold("late", ELSEWHERE, TERM, STALE)
        except CheckpointError:
            took.append("refused")

    def takes(step: Callable[[], None]) -> None:
        try:
            Place(folder, step).hold("other", ELSEWHERE, TERM, STALE)
        except CheckpointError:
            return
        took.append("other")

    Turns([renews, takes]).run([(0, one), (1, 99)])
    found = Place(folder).read()
    assert found is not None
    assert found.holder == ("other" if "other" in took else "late")
    if found.holder == "other":
        with pytest.raises(CheckpointError, match="held by other"):
            Place(folder).hold("late", ELSEWHERE, TERM, STALE)


def test_a_number_that_is_gone_and_put_once_more_takes_nothing(tmp_path):
    folder = TableFolder(str(tmp_path))
    slow = Place(folder)
    slow.hold("old", ELSEWHERE, TERM, 0)
    put = slow._put

    def late(number: int, lease: Lease) -> bool:
        slow._put = put
        for name in ("first", "second"):  # meanwhile the number is put, and removed by who came after
            Place(folder).hold(name, ELSEWHERE, TERM, STALE)
            if name == "first":
                Place(folder).release("first")
        return put(number, lease)

    slow._put = late
    with pytest.raises(CheckpointError, match="held by second"):
        slow.hold("slow", ELSEWHERE, TERM, STALE)
    assert Place(folder).read() == of("second", STALE)


def test_a_lease_is_renewed_released_and_taken_again_and_its_old_files_go(tmp_path):
    place = Place(TableFolder(str(tmp_path)))
    assert place.read() is None
    assert place.release() is None
    for number in range(5):
        place.hold(f"run {number}", ELSEWHERE, TERM, number)
        place.hold(f"run {number}", ELSEWHERE, TERM, TERM)
        assert place.read() == dataclasses.replace(of(f"run {number}", number), renewed_us=TERM)
        assert place.release("another") is None
        assert place.release(f"run {number}") is not None
        assert place.read() is None
        newest = place.newest()
        assert newest is not None
        assert newest.released
    files = [each.name for each in Path(tmp_path, "lease").iterdir() if each.is_file()]
    assert files == [f"{5:020d}.json"]


def test_what_has_ended(tmp_path):
    lease = of("a", 0)
    assert not lease.has_ended(STALE - 1)
    assert lease.has_ended(STALE)
    assert dataclasses.replace(lease, released=True).has_ended(0)
    assert Lease.from_json({**json.loads(json.dumps(lease.to_json())), "later": 1}) == lease


def test_a_folder_that_may_not_be_written_to(tmp_path):
    Path(tmp_path, "lease").write_text("a file")
    with pytest.raises(CheckpointError, match="unwritable"):
        Place(TableFolder(str(tmp_path))).hold("a", ELSEWHERE, TERM, 0)
