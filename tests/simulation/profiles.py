"""What scenarios are about: each profile draws a query and what happens to it from a seed."""

import random
import zlib
from collections.abc import Callable
from typing import Any

from .hosted_queries import STREAMS, changes
from .scenario import Action, Scenario

Made = tuple[dict[str, Any], list[Action]]
"""A configuration, and actions."""
BASE = 1_000_000
"""The first event time, in milliseconds."""
LOCAL_STEPS = ("JOURNALED", "TASKS_READ", "STATE_KEPT", "TASKS_WROTE", "NOTED")
SINK_STEPS = (
    "READ", "DECIDED", "STAGED", "HANDED_OVER", "LOOKED", "NEW", "CHECKED", "MERGED_AGAIN", "LISTED", "MARKED",
    "COMMITTED", "CLEARED", "REMEMBERED", "MAINTAINED", "COMPACTED", "PUT_OUT", "MEASURED",
)  # fmt: skip

HOSTED_STEPS = (
    "JOURNALED", "TASKS_READ", "STATE_KEPT", "TASKS_WROTE", "READ", "DECIDED", "STAGED", "HANDED_OVER", "LOOKED", "NEW",
    "CHECKED", "LISTED", "COMMITTED", "COMMITTED", "CLEARED", "REMEMBERED", "MAINTAINED", "NOTED",
)  # fmt: skip


_LANES = ("fresh", "fresh", "old", "old", "old", "lost")
"""The host's report on the lanes of streams as a source finds it."""


class Times:
    """Times of one feed in an order that a policy allows for, and that differ from other feeds' times."""

    def __init__(self, chance: random.Random, config: dict[str, Any], feed: int, all_shown: list[int]) -> None:
        self._chance = chance
        self._config = config
        self._feed = feed
        self._shown: list[int] = []
        # A feed that appears later begins later: of what nobody knew of, nothing could be promised.
        self._all_shown = all_shown
        self._at = self._floor = BASE

    def next(self) -> int:
        chance, name = self._chance, self._config["progress"]
        if not self._shown:
            self._floor = max(self._all_shown, default=BASE) // 10 * 10 + 10
            self._at = self._floor + chance.randrange(20) * 10
        self._at += chance.choice((0, 10, 10, 20, 70)) if self._config["fast"] else chance.choice((0, 0, 10))
        least = max(self._shown, default=self._at)
        if name == "bounded":
            least -= self._config["delay"]
        elif name == "displaced":
            out = self._config["displacement"]
            least = max(self._shown[: max(len(self._shown) - out, 0)], default=self._floor)
        time = self._at
        if name != "ordered" and chance.random() < 0.4:
            time -= chance.randrange(12) * 10
        if self._config["honest"]:
            time = max(time, least)
        elif chance.random() < 0.2:
            time -= 200
        time = time // 10 * 10 + self._feed
        if self._config["honest"] and time < least:
            time += 10
        self._shown.append(time)
        self._all_shown.append(time)
        return time


def rows_actions(chance: random.Random, config: dict[str, Any], pieces: int) -> list[Action]:
    """Rows of some feeds in pieces. Feeds appear, fall silent for a while, or for good."""
    feeds = list(range(config["feeds"]))
    shown: list[int] = []
    times = {feed: Times(chance, config, feed, shown) for feed in feeds}
    begin = {feed: 0 if feed == 0 else chance.choice((0, 0, pieces // 2)) for feed in feeds}
    silent = {feed: chance.choice((pieces, pieces, pieces * 2 // 3)) for feed in feeds}
    made: list[Action] = []
    for piece in range(pieces):
        for feed in feeds:
            if not begin[feed] <= piece < max(silent[feed], begin[feed] + 1) or chance.random() < 0.25:
                continue
            rows: list[list[int]] = []
            for _ in range(chance.choice((1, 2, 3, 5, 8))):
                key, time = chance.randrange(config["keys"]), times[feed].next()
                rows.append([key, time, int(chance.random() < config.get("deleted", 0.0))])
            made.append(["rows", feed, rows])
    return made


def trigger(chance: random.Random, config: dict[str, Any], steps: tuple[str, ...]) -> Action:
    """One trigger: a limit, deaths, twins, a budget."""
    chosen: dict[str, Any] = {}
    if chance.random() < config.get("limits", 0.5):
        chosen["limit"] = chance.choice((1, 2, 3, 5, 9))
    if chance.random() < 0.2:
        chosen["dies"] = [chance.choice(steps), chance.choice((1, 1, 1, 2, 3))]
    if chance.random() < 0.15:
        chosen["twins"] = chance.choice((0.3, 1.0))
    if "queue" in [each["op"] for each in config["stages"]]:
        chosen["budget"] = chance.choice((1, 1, 2, 5, None))
    if any(each.get("in_order") for each in config["stages"]):
        chosen["mode"] = chance.choice((None, "sync", "filter"))
    return ["batch", chosen]


def mixed(
    chance: random.Random, config: dict[str, Any], pieces: int, batches: int, others: list[Action]
) -> list[Action]:
    """Rows, triggers and other things in some order; rows of a feed stay in theirs."""
    steps = LOCAL_STEPS + (SINK_STEPS if config["sink"]["kind"] != "none" else ())
    arriving = rows_actions(chance, config, pieces)
    rest = [trigger(chance, config, steps) for _ in range(batches)] + others
    chance.shuffle(rest)
    made: list[Action] = arriving[:1]
    arriving = arriving[1:]
    while arriving or rest:
        take = arriving if chance.random() < len(arriving) / max(len(arriving) + len(rest), 1) else rest
        made.append((take or rest or arriving).pop(0))
    return made


def base_config(chance: random.Random) -> dict[str, Any]:
    return {
        "source": "files",
        "feeds": chance.choice((1, 2, 2, 3)),
        "keys": chance.choice((1, 3, 6)),
        "progress": chance.choice(("ordered", "bounded", "displaced")),
        "delay": chance.choice((0, 30, 100)),
        "displacement": chance.choice((0, 1, 4)),
        "confirmations": chance.choice((1, 1, 2, 5)),
        "honest": True,
        "fast": chance.random() < 0.7,
        "stages": [],
        "sink": {"kind": "table", "buckets": chance.choice((1, 2, 4)), "engine": "rewrite", "framed": True},
    }


def latest(chance: random.Random) -> Made:
    """The main job: the newest row per key, over files or a broker, with whatever happens to it."""
    config = base_config(chance)
    config["source"] = chance.choice(("files", "kafka"))
    config["deleted"] = 0.2 if config["source"] == "kafka" else 0.0
    config["honest"] = chance.random() < 0.5
    config["sink"]["engine"] = chance.choice(("rewrite", "vectors"))
    config["sink"]["framed"] = chance.random() < 0.8
    others: list[Action] = [
        ["rewrite", chance.choice(("ours", "optimize", "z_order"))] for _ in range(chance.choice((0, 0, 1, 2)))
    ]
    others += [["clock", chance.choice((-5_000_000, 3_600_000_000))] for _ in range(chance.choice((0, 1)))]
    others += _restarts(chance)
    return config, mixed(chance, config, 4, 5, others)


def restore(chance: random.Random) -> Made:
    """A checkpoint from an older backup takes the place of the query's own."""
    config, _ = latest(chance)
    config["honest"] = False
    config["sink"] |= {"framed": True, "engine": "rewrite"}
    actions = mixed(chance, config, 4, 4, [["backup"]])
    middle = actions.index(["backup"])
    while len(actions) - middle < 3:
        actions.append(["batch", {}])
    at = chance.randrange(middle + 2, len(actions) + 1)
    return config, [*actions[:at], ["restore"], *rows_actions(chance, config, 1), *actions[at:]]


def two_writes(chance: random.Random) -> Made:
    """Inserts and deletions of a batch by two calls of `write_batch` in one `foreachBatch`."""
    config = base_config(chance)
    config |= {"source": "kafka", "deleted": 0.4, "honest": False}
    config["sink"] |= {"kind": "two writes", "engine": "rewrite"}
    return config, mixed(chance, config, 3, 4, [])


def windows(chance: random.Random) -> Made:
    """Windows by every policy, under limits, with feeds that appear and fall silent."""
    config = base_config(chance)
    config["source"] = chance.choice(("files", "kafka"))
    config["limits"] = 0.7
    config["stages"] = [_window(chance)]
    config["sink"] = {"kind": "none"}
    return config, mixed(chance, config, 5, 6, _restarts(chance))


def arrival(chance: random.Random) -> Made:
    """Rows are stamped as they come in."""
    config, _ = windows(chance)
    config["progress"] = "arrival"
    config["stages"] = [{**_window(chance), "size": chance.choice((1000, 4000)), "slide": 1000}]
    return config, mixed(chance, config, 4, 6, [["clock", chance.choice((-5_000_000, 20_000_000))]])


def ends(chance: random.Random) -> Made:
    """Feeds that end: their last windows close, and they hold nobody back."""
    config, _ = windows(chance)
    config["source"] = "kafka"
    config["ends"] = sorted(chance.sample(range(config["feeds"]), chance.randint(1, config["feeds"])))
    return config, mixed(chance, config, 4, 5, [])


def over(chance: random.Random) -> Made:
    """Windows over windows."""
    config, _ = windows(chance)
    inner = {**_window(chance), "emit": chance.choice(("lazy", "all", "all"))}
    inner["slide"] = inner["size"]
    outer = {**_window(chance), "slide": inner["size"] * 2, "size": inner["size"] * chance.choice((2, 4))}
    config["stages"] = [inner, outer]
    config["fused"] = inner.get("shards") == outer.get("shards") and chance.random() < 0.5
    return config, mixed(chance, config, 4, 5, [])


def queue(chance: random.Random) -> Made:
    """An update queue with budgets, before the table."""
    config, _ = latest(chance)
    config["honest"] = True
    config["stages"] = [{"op": "queue", "policy": chance.choice(("fifo", "in-place", "linecutting", "append"))}]
    config["sink"] |= {"engine": "rewrite", "framed": True}
    return config, mixed(chance, config, 3, 4, [])


def ordered(chance: random.Random) -> Made:
    """Rows held until they may leave in order."""
    config, _ = windows(chance)
    config["stages"] = [{"op": "ordered", "shards": chance.choice((1, 2))}]
    if chance.random() < 0.3:
        config["sink"] = {"kind": "table", "buckets": 2, "engine": "rewrite", "framed": True}
    return config, mixed(chance, config, 4, 5, [])


def joins(chance: random.Random) -> Made:
    """A join by time of a source with itself, with and without partners."""
    config, _ = windows(chance)
    if chance.random() < 0.3:
        config["source"] = "kafka"
        config["ends"] = sorted(chance.sample(range(config["feeds"]), chance.randint(1, config["feeds"])))
    how = chance.choice(("inner", "left", "right", "full", "semi", "anti"))
    before, after = chance.choice(((0, 0), (20, 30), (-10, 50), (50, -20), (100, 0)))
    config["stages"] = [{"op": "join", "how": how, "before": before, "after": after, "shards": chance.choice((1, 2))}]
    return config, mixed(chance, config, 5, 6, _restarts(chance))


def early_joins(chance: random.Random) -> Made:
    """A join that gives rows without a partner at once, and takes them back."""
    config, actions = joins(chance)
    config["stages"][0] |= {"early": True, "how": chance.choice(("left", "right", "full", "anti"))}
    return config, actions


def ordered_joins(chance: random.Random) -> Made:
    """A join in the order of time, which changes from one way to the other."""
    config, _ = joins(chance)
    config["stages"][0] |= {"in_order": True, "how": chance.choice(("inner", "inner", "left"))}
    return config, mixed(chance, config, 5, 6, _restarts(chance))


def limited_joins(chance: random.Random) -> Made:
    """A join that drops the oldest rows where its state would be too large."""
    config, actions = joins(chance)
    config["stages"][0] |= {"limit": chance.choice((6_000, 10_000, 16_000)), "how": chance.choice(("inner", "full"))}
    return config, actions


def table_joins(chance: random.Random) -> Made:
    """A join with a table that changes while the query runs, and while it is dead."""
    config, _ = windows(chance)
    config["stages"] = [{"op": "table join", "how": chance.choice(("inner", "left", "left", "semi", "anti"))}]

    def names(version: int) -> dict[str, str]:
        return {str(key): f"{key} in {version}" for key in range(config["keys"]) if chance.random() < 0.7}

    config["table"] = names(0)
    changes: list[Action] = [["table", names(version)] for version in range(1, chance.randint(2, 5))]
    return config, mixed(chance, config, 4, 5, changes + _restarts(chance))


def newest_joins(chance: random.Random) -> Made:
    """A join of newest rows whose keys move between groups, before the table."""
    config, _ = latest(chance)
    config |= {"deleted": 0.0, "stages": [{"op": "newest join", "shards": chance.choice((1, 2))}]}
    config["sink"] |= {"engine": "rewrite"}
    return config, mixed(chance, config, 4, 5, _restarts(chance))


def cut(chance: random.Random) -> Made:
    """A partition's log loses its tail, and the query is to go on."""
    config, _ = windows(chance)
    config |= {"source": "kafka", "lossy": True, "honest": False}
    actions = mixed(chance, config, 4, 5, [])
    at = chance.randrange(2, len(actions))
    lost: list[Action] = [["cut", chance.randrange(config["feeds"]), chance.choice((1, 2, 5))]]
    if chance.random() < 0.3:  # it is seen before more is written
        lost += [["batch", {}], ["clock", 20_000_000], ["batch", {}]]
    actions = [*actions[:at], *lost, *actions[at:]]
    if chance.random() < 0.3:
        again = chance.randrange(at + len(lost), len(actions) + 1)
        actions.insert(again, ["cut", chance.randrange(config["feeds"]), chance.choice((1, 2, 5))])
    return config, actions


def hosted(chance: random.Random) -> Made:
    """Continuous queries that come, change, fail and go while rows come, late ones among them."""
    pieces = chance.choice((5, 7, 9))
    feeds = {stream: [f"{stream}/{number}" for number in range(chance.choice((1, 1, 2)))] for stream in STREAMS}
    if chance.random() < 0.3:
        del feeds["quote"]
    now, bounds = 4, dict.fromkeys((each for some in feeds.values() for each in some), 0)
    arriving: list[Action] = []
    for _ in range(pieces):
        now += chance.choice((1, 2, 2, 4, 10))
        for feed, bound in bounds.items():
            if chance.random() < 0.2:  # it is silent
                continue
            rows = [_hosted_row(chance, now, bound) for _ in range(chance.choice((1, 1, 2, 3)))]
            arriving.append(["rows", feed, rows])
            if chance.random() < 0.8:
                bounds[feed] = max(bound, now - chance.choice((0, 1, 3)))
                arriving.append(["promise", feed, bounds[feed]])
    if chance.random() < 0.2:
        arriving.append(["promise", chance.choice(list(bounds)), None])
    count = chance.choice((3, 5, 8))
    changing = changes(chance, count)
    batches = [_hosted_batch(chance) for _ in range(chance.choice((6, 8, 10)))]
    others: list[Action] = [["restart", chance.random() < 0.5] for _ in range(chance.choice((0, 1, 2)))]
    made = changing[:-count]
    rest = [arriving, changing[-count:], batches + others]
    chance.shuffle(rest[2])
    while any(rest):
        made.append(chance.choice([each for each in rest for _ in each]).pop(0))
    shards = chance.choice((1, 2, 3))
    if chance.random() < 0.6:
        for word, *given in made:
            if word == "batch":
                given[0] |= {"budget": chance.choice((1, 1, 2, 3, None)), "lanes": chance.choice(_LANES)}
    return {"honest": False, "shards": shards}, made


def _hosted_row(chance: random.Random, now: int, bound: int) -> list[int]:
    unit = now + chance.choice((0, 0, 1, 2, 2, 7)) - chance.choice((0, 0, 0, 1, 3))
    if chance.random() < 0.15:
        unit = bound - chance.choice((1, 2, 5))  # it is late
    return [chance.choice((0, 0, 1, 1, 2, 3)), unit, chance.choice((0, 0, 1, 2, 3, 4, 5)), int(chance.random() < 0.2)]


def _hosted_batch(chance: random.Random) -> Action:
    chosen: dict[str, Any] = {}
    if chance.random() < 0.3:
        # A batch commits to several tables: it may die amid them.
        chosen |= {"dies": [chance.choice(HOSTED_STEPS), chance.choice((1, 1, 1, 2, 3, 5))]}
        chosen |= {"forgets": chance.random() < 0.7}
    if chance.random() < 0.3:
        chosen["twins"] = chance.choice((0.5, 1.0))
    if chance.random() < 0.2:
        chosen["share"] = chance.choice((0.0, 0.5))
    return ["batch", chosen]


def _restarts(chance: random.Random) -> list[Action]:
    return [["restart"] for _ in range(chance.choice((0, 1)))]


def _window(chance: random.Random) -> dict[str, Any]:
    size = chance.choice((20, 50, 100))
    slide = chance.choice((size, size, size // 2 if size != 50 else 10))
    return {"op": "windows", "size": size, "slide": slide, "emit": "all", "method": "paned", "shards": 2}


_ALL = (
    latest, restore, two_writes, windows, arrival, ends, over, queue, ordered, joins, early_joins, ordered_joins,
    limited_joins, table_joins, newest_joins, cut, hosted,
)  # fmt: skip
PROFILES: dict[str, Callable[[random.Random], Made]] = {each.__name__: each for each in _ALL}


def made(profile: str, seed: int) -> Scenario:
    config, actions = PROFILES[profile](random.Random(zlib.crc32(f"{profile} {seed}".encode())))
    return Scenario(profile, seed, config, actions)
