"""Events of the NEXMark benchmark: people, auctions and bids in the proportions 1 : 3 : 46, with hot keys."""

from collections.abc import Sequence
from datetime import datetime, timezone

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from upstream.language import Catalog
from upstream.operators.relations.plan.nodes import Stream
from upstream.operators.relations.zsets import dtypes_of

_MOMENT, _LONG, _TEXT = pa.timestamp("us", "UTC"), pa.int64(), pa.string()
BID = Stream(
    "bid",
    pa.schema(
        {
            **dict.fromkeys(("auction", "bidder", "price"), _LONG),
            **dict.fromkeys(("channel", "url"), _TEXT),
            "dateTime": _MOMENT,
            "extra": _TEXT,
        }
    ),
    event_time="dateTime",
)
AUCTION = Stream(
    "auction",
    pa.schema(
        {
            "id": _LONG,
            **dict.fromkeys(("itemName", "description"), _TEXT),
            **dict.fromkeys(("initialBid", "reserve"), _LONG),
            **dict.fromkeys(("dateTime", "expires"), _MOMENT),
            **dict.fromkeys(("seller", "category"), _LONG),
            "extra": _TEXT,
        }
    ),
    key=("id",),
    event_time="dateTime",
    updates=True,
)
PERSON = Stream(
    "person",
    pa.schema(
        {
            "id": _LONG,
            **dict.fromkeys(("name", "emailAddress", "creditCard", "city", "state"), _TEXT),
            "dateTime": _MOMENT,
            "extra": _TEXT,
        }
    ),
    key=("id",),
    event_time="dateTime",
    updates=True,
)
SIDE_INPUT = Stream("side_input", pa.schema({"key": _LONG, "value": _TEXT}), static=True)
STREAMS = (BID, AUCTION, PERSON)
CATALOG = Catalog()
for _each in (*STREAMS, SIDE_INPUT):
    CATALOG = CATALOG.with_stream(_each)
CATALOG = CATALOG.with_function(
    "count_char", "CREATE FUNCTION count_char(text STRING, sign STRING) RETURNS BIGINT AS 'kit.nexmark:count_char'"
)

BEGIN_US = int(datetime(2024, 1, 1, 23, 59, 30, tzinfo=timezone.utc).timestamp()) * 1_000_000
EVENT_US = 50_000
_FIRST = 1100  # the first id of people and of auctions
_AHEAD = 10  # ids that events name before these are there
_IN_FLIGHT = 100
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


def count_char(text: pa.Array, sign: pa.Array) -> pa.Array:
    """Return how often a sign, the same for all rows, is in a text."""
    return pc.count_substring(text, pattern=sign[0].as_py() if len(sign) else "")


def events(count: int, seed: int = 0) -> dict[str, pl.DataFrame]:
    """Return the rows of each stream, with ``__at``: the numbers in which they arrive, in the order of their times."""
    chance = np.random.default_rng(seed)
    numbers = np.arange(count)
    place = numbers % 50
    people = numbers // 50 + (place > 0)  # how many are there before an event
    auctions = numbers // 50 * 3 + np.clip(place - 1, 0, 3)

    def near(there: np.ndarray, behind: int) -> np.ndarray:
        """Draw ids of what is there, or soon will be."""
        least = np.maximum(there - behind, 0)
        return _FIRST + least + (chance.random(len(there)) * (there - least + _AHEAD)).astype(np.int64)

    def hot(there: np.ndarray, every: int, behind: int) -> np.ndarray:
        """Let all but one of so many events name the newest multiple of 10."""
        cold = chance.integers(0, every, len(there)) == 0
        return np.where(cold, near(there, behind), _FIRST + np.maximum(there - 1, 0) // 10 * 10)

    def text(rows: int, length: int = 6) -> np.ndarray:
        return chance.integers(ord("a"), ord("f"), (rows, length), dtype=np.uint32).view(f"U{length}")[:, 0]

    def choice(some: Sequence[str], rows: int) -> np.ndarray:
        return np.array(some)[chance.integers(0, len(some), rows)]

    def joined(*parts: str | np.ndarray) -> np.ndarray:
        made: np.ndarray = np.array("")
        for each in parts:
            made = np.char.add(made, each if isinstance(each, str) else each.astype(str))
        return made

    def price(rows: int) -> np.ndarray:
        return np.round(10 ** (chance.random(rows) * 6) * 100).astype(np.int64)

    def frame(stream: Stream, at: np.ndarray, **columns: np.ndarray) -> pl.DataFrame:
        columns = {"dateTime": BEGIN_US + at * EVENT_US, "extra": text(len(at), 9), **columns}
        made = pl.DataFrame({name: columns[name] for name in stream.schema.names}).cast(dtypes_of(stream.schema))
        return made.with_columns(__at=pl.Series(at))

    at = numbers[place == 0]
    rows = len(at)
    found = {
        "person": frame(
            PERSON,
            at,
            id=_FIRST + people[at],
            name=joined(choice(("Peter", "Paul", "Julie", "Vicky"), rows), " ", text(rows, 3)),
            emailAddress=joined(text(rows), "@", text(rows), ".com"),
            creditCard=joined("1234 5678 9012 ", chance.integers(1000, 9999, rows)),
            city=choice(_CITIES, rows),
            state=choice(_STATES, rows),
        )
    }
    at = numbers[(place > 0) & (place < 4)]
    rows = len(at)
    least = price(rows)
    found["auction"] = frame(
        AUCTION,
        at,
        id=_FIRST + auctions[at],
        itemName=text(rows),
        description=text(rows, 12),
        initialBid=least,
        reserve=least + price(rows),
        expires=BEGIN_US + (at + 1 + chance.integers(0, _IN_FLIGHT * 50 // 3 * 2, rows)) * EVENT_US,
        seller=hot(people[at], 4, 1000),
        category=chance.integers(10, 15, rows),
    )
    at = numbers[place > 3]
    rows = len(at)
    channel = chance.integers(0, 10_000, rows)
    is_hot = chance.integers(0, 2, rows) == 0
    url = joined("https://www.nexmark.com/", text(rows, 5), "/", text(rows, 5), "/", text(rows, 5), "/item.htm?query=1")
    found["bid"] = frame(
        BID,
        at,
        auction=hot(auctions[at], 2, _IN_FLIGHT),
        bidder=hot(people[at], 4, 1000),
        price=price(rows),
        channel=np.where(is_hot, choice(_CHANNELS, rows), joined("channel-", channel)),
        url=np.where(is_hot | (channel % 10 == 0), url, joined(url, "&channel_id=", channel)),
    )
    return found
