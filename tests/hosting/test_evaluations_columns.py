"""Only the columns that queries read are sent, and a query that reads more than earlier rows have begins by itself."""

from datetime import timedelta
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import BUSES, EPOCH, QUOTE, TRADE, rows_of_streams
from kit.hosting import Arrivals, Tables, Versions, frame, is_behind, run, scanned
from kit.local_host import LocalHost

from upstream.core.rows.frames import from_frame
from upstream.hosting import host_plan, scan
from upstream.hosting.host_plan import HostPlans
from upstream.hosting.messages import Command
from upstream.hosting.scan import ScanStep, in_order, rows_of
from upstream.operators.relations.plan.nodes import Stream, walk

TEXTS = (
    "SELECT sym, COUNT(*) AS c FROM trade [RANGE 2 SECONDS] GROUP BY sym",
    "SELECT sym, SUM(n) AS s FROM trade [RANGE 2 SECONDS] GROUP BY sym",
    "SELECT sym, MAX(px) AS m FROM trade [RANGE 3 SECONDS SLIDE 1 SECOND] WHERE n > 0 GROUP BY sym",
    "SELECT sym, MIN(n) AS m FROM trade [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY sym",
    "SELECT n FROM trade",
    "SELECT COUNT(*) AS c FROM (SELECT DISTINCT sym, n FROM trade [RANGE 2 SECONDS]) AS x",
    "SELECT sym, SUM(bid) AS s FROM trade [RANGE 3 SECONDS] JOIN quote [RANGE 2 SECONDS] USING (sym) GROUP BY sym",
    "SELECT sym, n FROM trade [PARTITION BY sym ROWS 1]",
    "SELECT route_id, COUNT(*) AS c FROM LATEST(buses) GROUP BY route_id",
)
SECOND_US = 1_000_000
START_US = int(EPOCH.timestamp()) * SECOND_US


def every_column(plan):
    return {each: frozenset(each.schema.names) for each in walk(plan) if isinstance(each, Stream)}


def followed(versions, arrivals, of_batch, *, narrow):
    """The tables after each batch, and from when on each query is complete."""
    with patch.object(host_plan, "columns_read", host_plan.columns_read if narrow else every_column):
        host, left = LocalHost(versions, 2), [*arrivals.batches]
        found, tables = [], Tables(host.plan(1))
        while left or is_behind(host):
            version = of_batch[min(len(found), len(of_batch) - 1)]
            tables.plan = host.plan(version)
            host = run(host, Command(len(found), version), left.pop(0) if left else {}, tables)
            found.append({number: tables.contents(number) for number in tables.plan.queries})
    assert not tables.failed
    return found, tables.begun


@given(
    rows=rows_of_streams(),
    spans=st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=5),
    batches=st.integers(1, 4),
    draw=st.data(),
)
def test_a_query_has_the_rows_of_all_columns_or_those_since_it_began(rows, spans, batches, draw):
    arrivals = Arrivals(rows, draw, batches)
    of_batch = sorted(draw.draw(st.lists(st.integers(1, 3), min_size=batches + 1, max_size=batches + 1)))
    there = dict(enumerate(spans, 1))

    def versions(numbers):
        return Versions(
            {
                at: {f"q{n}": (n, there[n][0]) for n in numbers if there[n][1] <= at <= max(there[n][1:])}
                for at in (1, 2, 3)
            }
        )

    found, begun = followed(versions(there), arrivals, of_batch, narrow=True)
    whole, whole_begun = followed(versions(there), arrivals, of_batch, narrow=False)
    for number, (_, first, _) in there.items():
        mine, of_whole = ([each.get(number) for each in some] for some in (found, whole))
        if first <= of_batch[0]:
            assert (mine, begun.get(number)) == (of_whole, whole_begun.get(number))
        elif (mine, begun.get(number)) != (of_whole, whole_begun.get(number)):
            alone, alone_begun = followed(versions([number]), arrivals, of_batch, narrow=True)
            assert (mine, begun.get(number)) == ([each.get(number) for each in alone], alone_begun.get(number))


COUNT, SUM = TEXTS[:2]
HOUR = "SELECT sym, {} AS x FROM trade [RANGE 1 HOUR] GROUP BY sym"


def trades(seconds, bound):
    rows = frame(TRADE, [("a", 1.0, second, EPOCH + timedelta(seconds=second)) for second in seconds])
    return scanned(TRADE, rows, range(100, 100 + len(seconds)), {"f": START_US + bound * SECOND_US})


def counted(*versions):
    """What queries of some texts hold, and from when on, after a batch of a row for each version of the registry."""
    known = Versions(
        {at: {text: (number, HOUR.format(text)) for text, number in each.items()} for at, each in enumerate(versions)}
    )
    host, tables = LocalHost(known, 1), Tables(LocalHost(known, 1).plan(0))
    for at in range(len(versions)):
        tables.plan = host.plan(at)
        host = run(host, Command(at, at), {"trade": [trades([at], at + 1)]}, tables)
    names = {number: text for each in versions for text, number in each.items()}
    last = {names[number]: next(iter(tables.contents(number)))[-1] for number in tables.plan.queries}
    whole = {number for number, since in tables.begun.items() if since is not None and since < START_US}
    return last, {names[number] for number in whole & tables.plan.queries.keys()}


def test_a_query_that_reads_what_was_sent_starts_with_the_rows_of_a_running_window():
    first, more = {"COUNT(*)": 1}, {"COUNT(*)": 1, "SUM(n)": 2}
    assert counted(first, first, more) == ({"COUNT(*)": 3, "SUM(n)": 2}, {"COUNT(*)"})
    assert counted(more, more, {**more, "MAX(n)": 3}) == (
        {"COUNT(*)": 3, "SUM(n)": 3, "MAX(n)": 2}, {"COUNT(*)", "SUM(n)", "MAX(n)"},
    )  # fmt: skip
    later = {**more, "MAX(n)": 3}
    assert counted(first, more, later) == ({"COUNT(*)": 3, "SUM(n)": 3, "MAX(n)": 2}, {"COUNT(*)"}), "as the second"
    again = {**first, "SUM(n)": 4}
    assert counted(more, first, again) == ({"COUNT(*)": 3, "SUM(n)": 2}, {"COUNT(*)"})


def columns_sent(stream, *texts, keeps_late=False):
    """The columns of a stream that its one routing sends."""
    versions = Versions({1: {f"q{at}": (at, text) for at, text in enumerate(texts)}})
    step = ScanStep(lambda: Command(0, 1), HostPlans(versions, [0]), stream.name, keeps_late=keeps_late)
    rows = frame(stream, [tuple(EPOCH if name == "t" or name == "timestamp" else None for name in stream.schema.names)])
    sent = [row for batch in step(iter(scanned(stream, rows, [1]).to_batches())) for row in batch.to_pylist()]
    (came,) = (in_order([from_frame(each["frame"])]) for each in sent if each["frame"] is not None)
    assert rows_of(came, stream.schema).select(stream.schema.names).equals(rows)
    return [name for name in came.column_names if name in stream.schema.names]


def test_what_a_query_reads_is_sent():
    every = TRADE.schema.names
    assert columns_sent(TRADE, COUNT) == ["sym", "t"]
    assert columns_sent(TRADE, COUNT, SUM) == ["sym", "n", "t"]
    assert columns_sent(TRADE, COUNT, "SELECT sym, MAX(n) AS n FROM trade [NOW] WHERE px > 1 GROUP BY sym") == every
    assert columns_sent(TRADE, COUNT, keeps_late=True) == every
    assert columns_sent(TRADE, "SELECT n FROM trade [ROWS 3]") == every
    assert columns_sent(BUSES, "SELECT vehicle_id FROM LATEST(buses)") == BUSES.schema.names
    assert columns_sent(TRADE, "SELECT * FROM trade [NOW]") == every
    joined = "SELECT a.sym, COUNT(*) AS c FROM trade [NOW] AS a JOIN quote [NOW] AS b ON a.sym = b.sym GROUP BY a.sym"
    assert columns_sent(QUOTE, joined) == ["sym", "t"]


def test_rows_are_converted_once_for_all_routes():
    other = "SELECT n, MAX(px) AS m FROM trade [NOW] GROUP BY n"
    step = ScanStep(lambda: Command(0, 1), HostPlans(Versions({1: {"a": (1, COUNT), "b": (2, other)}}), [0]), "trade")
    with patch.object(scan, "as_sent", wraps=scan.as_sent) as converted:
        sent = [row["frame"] for part in step(iter(trades([1, 2], 3).to_batches())) for row in part.to_pylist()]
    assert converted.call_count == 1
    came = [in_order([from_frame(each)]) for each in sent if each is not None]
    assert sorted(",".join(name for name in TRADE.schema.names if name in each.column_names) for each in came) == [
        "px,n,t",
        "sym,t",
    ]
    (grouped,) = (each.column("n").to_pylist() for each in came if "n" in each.column_names)
    assert grouped == [1, 2]
