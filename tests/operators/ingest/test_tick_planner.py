"""What silent feeds of a DataFrame promise on demand: through the shard, its reports, and the planner of ticks."""

import dataclasses
import json

import pyarrow as pa

from upstream.core.feedback.on_demand_watermark import DownstreamReports, OnDemandWatermark
from upstream.core.feedback.reports import FeedReports, read_feed_reports, write_report
from upstream.core.rows.system_column import system_field
from upstream.core.watermark.policies import Policy
from upstream.operators.ingest.plan import ARRIVAL, FEED, IntakePlan
from upstream.operators.ingest.shard import IntakeShard, frames_of
from upstream.operators.ingest.tick_planner import SilentFeedPlanner, silent_feed_options
from upstream.operators.state.store import DictStore

S = 1_000_000


@dataclasses.dataclass
class Needs:
    needs: int | None


class Input:
    """One shard of feeds, its reports, and a planner of ticks; `needs` is what an operator waits for."""

    def __init__(self, folder, policy="ordered", **on_demand):
        self.plan = IntakePlan(
            name="rows", key=("k",), time="at", time_format="epoch_us", time_zone="UTC",
            policy=Policy(policy, confirmations=1), fail=True, shards=1,
            schema=pa.schema([("k", pa.int64()), ("at", pa.int64())] if policy != "arrival" else [("k", pa.int64())]),
            on_demand=OnDemandWatermark(**on_demand),
        )  # fmt: skip
        self.folder, self.store, self.needs, self.batch = str(folder), DictStore(), None, 0
        self.planner = SilentFeedPlanner(
            (3,), lambda: read_feed_reports(self.folder), DownstreamReports(lambda: [Needs(self.needs)]),
            self.plan.policy, self.plan.on_demand,
        )  # fmt: skip
        self.offset = self.planner.initial()

    def run(self, frames, message=None):
        control = None if message is None else json.dumps(message)
        result, report = IntakeShard(0, self.plan, self.store).run(frames, batch_id=self.batch, control=control)
        self.batch += 1
        write_report(self.folder, report)
        if result is None:
            return []
        punctuation = result.filter(system_field(result, "punctuation"))
        self.arrivals = {at.timestamp() for at in system_field(punctuation, "arrival").to_pylist()}
        return [
            (feed, row["at"])
            for feed, row in zip(system_field(punctuation, "source").to_pylist(), punctuation.to_pylist(), strict=True)
        ]

    def rows(self, feed, times, now_us):
        columns = {
            "k": times,
            "at": times,
            FEED: [feed] * len(times),
            ARRIVAL: pa.array([now_us] * len(times), pa.timestamp("us", "UTC")),
        }
        table = pa.table({name: columns[name] for name in [*self.plan.schema.names, FEED, ARRIVAL]})
        packed = frames_of(table, [3], (0, 0), every_shard=True)
        return self.run(packed.column("frame").to_pylist())

    def tick(self, now_us):
        """The batch that the planner starts; None if it starts none."""
        end = self.planner.plan(json.loads(json.dumps(self.offset)), now_us)
        if end == self.offset:
            return None
        self.offset = end
        ((slot, message),) = self.planner.messages(end)
        assert slot == 3
        return self.run([], json.loads(message))


def test_a_silent_feed_promises_its_newest_time_and_the_time_since_less_the_skew(tmp_path):
    feeds = Input(tmp_path, delay_us=2 * S)
    assert feeds.planner.messages(feeds.offset) == []
    assert feeds.rows("a", [100 * S], 200 * S) == [("a", 100 * S)]
    assert feeds.tick(205 * S) is None, "nobody waits"
    feeds.needs = 110 * S
    assert feeds.tick(211 * S) is None, "100 + 11 - 2 is before what is needed"
    assert feeds.tick(212 * S) == [("a", 110 * S)]
    assert feeds.offset["now_us"] == 212 * S
    assert feeds.tick(300 * S) is None, "what was needed has been promised"


def test_feeds_of_one_input_promise_no_further_than_the_last_of_them_can(tmp_path):
    feeds = Input(tmp_path, delay_us=0)
    feeds.rows("a", [100 * S], 200 * S)
    feeds.rows("b", [150 * S], 200 * S)
    feeds.needs = 120 * S
    assert feeds.tick(225 * S) == [("a", 125 * S)], "b has come further already"
    assert feeds.offset["promises"] == {"a": 125 * S}
    assert feeds.arrivals == {225}, "the promise came by the clock of its batch"


def test_a_feed_that_is_stamped_on_entry_promises_the_clock(tmp_path):
    feeds = Input(tmp_path, "arrival", internal=True)
    feeds.plan = dataclasses.replace(feeds.plan, time_format=None)
    feeds.rows("a", [1], 200 * S)
    feeds.needs = 200 * S + 1
    found = feeds.tick(203 * S)
    assert [(feed, at.timestamp()) for feed, at in found] == [("a", 203)]


def test_a_run_that_reads_what_is_there_waits_for_no_clock(tmp_path):
    feeds = Input(tmp_path, delay_us=0)
    feeds.rows("a", [100 * S], 200 * S)
    feeds.needs = 110 * S
    feeds.planner.stop()
    assert feeds.tick(300 * S) is None


def test_the_settings_come_from_the_options(tmp_path):
    policy, on_demand = Policy("bounded", delay_us=7), OnDemandWatermark(delay_us=5)
    options = silent_feed_options(f"{tmp_path}/upstream-feeds/rows", policy, on_demand)
    assert options["checkpoint"] == str(tmp_path)
    planner = SilentFeedPlanner.of((3, 4), {**options, "feedback": f"{tmp_path}/upstream-feeds/rows"})
    assert (planner.policy, planner.on_demand, planner.reports()) == (policy, on_demand, [])
    assert planner.plan(planner.initial(), 5) == planner.initial()


def test_reports_of_earlier_releases_are_read():
    text = {"feed": "a", "bound": 1, "newest": 1, "arrival_us": 0, "rows": 1, "late": 0, "suspects": 0, "malformed": 0}
    (report,) = FeedReports.from_json({"shard": 0, "feeds": [text]}).feeds
    assert (report.feed, report.progress) == ("a", None)
