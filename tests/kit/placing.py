"""Plans that are evaluated in slots, as :func:`upstream.hosting.placement.placed` divides them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from upstream.expressions.nodes import Expression
from upstream.hosting.placement import Fragment, Placement
from upstream.hosting.scan import slots_of
from upstream.operators.relations.evaluation import Evaluation, EvaluationStep
from upstream.operators.relations.operator import computed
from upstream.operators.relations.plan.nodes import Node, Stream, walk
from upstream.operators.relations.streams import SEQUENCE
from upstream.operators.relations.zsets import empty_delta
from upstream.operators.state.store import DictStore, Store

_QUERY = "query"


def chosen_slots(
    rows: pl.DataFrame, by: Sequence[Expression], schema: pa.Schema, slots: int, gathered: int
) -> list[int]:
    """Return the slot of each row."""
    if not by:
        return pl.repeat(gathered, rows.height, dtype=pl.Int64, eager=True)
    columns = [computed(each, schema).series(rows, str(at)) for at, each in enumerate(by)]
    return pl.Series(slots_of(columns, slots))


class Divided:
    """A plan in ``first`` slots of one stage and ``second`` slots of another, each with one evaluation per part.

    Each step opens all evaluations anew over what the step before saved.
    """

    def __init__(self, placement: Placement, first: int, second: int, store: Callable[[], Store] = DictStore) -> None:
        self.placement = placement
        self._first, self._second = first, second
        self._stores = [[store() for _ in range(first)] for _ in placement.fragments]
        self._above = [store() for _ in range(second)]
        self._numbers: dict[str, int] = {}
        self.apart: list[list[pl.DataFrame]] = []

    def step(self, streams: Mapping[str, pl.DataFrame], low_watermark: int) -> pl.DataFrame:
        """Take rows in the order in which they arrive, and return the changes of all slots."""
        rows = {name: self._numbered(name, each) for name, each in streams.items()}
        parts = [self._part(number, each, rows, low_watermark) for number, each in enumerate(self.placement.fragments)]
        plan = self.placement.second
        if plan is None:
            results = parts[0]
        else:
            alone = all(each.onward == () for each in self.placement.fragments)
            gathered = self.placement.gathered_in(self._second)
            sent = [self._onward(each, part) for each, part in zip(self.placement.fragments, parts, strict=True)]
            given = [each.plan for each in self.placement.fragments]
            results = [
                _stepped(
                    self._above[slot],
                    plan,
                    {},
                    low_watermark,
                    {node: each[slot] for node, each in zip(given, sent, strict=True)},
                )
                for slot in ([gathered] if alone else range(self._second))
            ]
        self.apart.append(results)
        return pl.concat(results)

    def _numbered(self, name: str, rows: pl.DataFrame) -> pl.DataFrame:
        if SEQUENCE in rows.columns:
            return rows
        begin = self._numbers.get(name, 0)
        self._numbers[name] = begin + rows.height
        return rows.with_columns(pl.Series(SEQUENCE, np.arange(begin, begin + rows.height)))

    def _part(
        self, number: int, fragment: Fragment, rows: Mapping[str, pl.DataFrame], low_watermark: int
    ) -> list[pl.DataFrame]:
        gathered = fragment.gathered_in(self._first)
        assert {each.stream for each in fragment.routes} == {x for x in walk(fragment.plan) if isinstance(x, Stream)}
        assert len({bool(each.by) for each in fragment.routes}) == 1, "either all streams are gathered, or none"
        routed: list[dict[str, pl.DataFrame]] = [{} for _ in range(self._first)]
        for route in fragment.routes:
            name = route.stream.name
            slots = chosen_slots(rows[name], route.by, route.stream.schema, self._first, gathered)
            for slot, its in enumerate(routed):
                its[name] = rows[name].filter(slots == slot)
        used = range(self._first) if fragment.routes[0].by else [gathered]
        return [_stepped(self._stores[number][slot], fragment.plan, routed[slot], low_watermark) for slot in used]

    def _onward(self, fragment: Fragment, changes: list[pl.DataFrame]) -> list[pl.DataFrame]:
        frame = pl.concat([empty_delta(fragment.plan.schema), *changes])
        assert fragment.onward is not None
        gathered = self.placement.gathered_in(self._second)
        slots = chosen_slots(frame, fragment.onward, fragment.plan.schema, self._second, gathered)
        return [frame.filter(slots == slot) for slot in range(self._second)]


def _stepped(
    store: Store,
    plan: Node,
    streams: Mapping[str, pl.DataFrame],
    low_watermark: int,
    received: Mapping[Node, pl.DataFrame] | None = None,
) -> pl.DataFrame:
    evaluation = Evaluation(store)
    evaluation.add(_QUERY, plan, given=() if received is None else tuple(received))
    outcome: EvaluationStep = evaluation.step(streams, low_watermark, received)
    assert not outcome.failed, outcome.failed
    evaluation.save()
    return outcome.changes[_QUERY]
