"""The option that tells a source its steps: it says what was put in, and nothing is loaded before it is asked for."""

import base64
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.core.pushdown.source_steps import STEPS_OPTION, SourceSteps, parse_steps


def twice(batches):
    for batch in batches:
        yield batch
        yield batch


@given(st.text(), st.text(), st.lists(st.text(max_size=9), max_size=3), st.randoms())
def test_what_an_option_carries_is_what_comes(rows, schema, archives, random):
    steps = SourceSteps(rows, schema, "program", tuple(archives))
    name = "".join(random.choice((letter.lower(), letter.upper())) for letter in STEPS_OPTION)
    found, others = parse_steps({"key": "a", name: steps.to_option(), "Path": "b"})
    assert others == {"key": "a", "Path": "b"}
    assert found is not None
    assert (found.rows, found.schema, found.program, tuple(found.archives)) == (
        rows, schema, "program", tuple(archives),
    )  # fmt: skip


def test_the_program_is_what_was_given():
    assert parse_steps({"key": "a"}) == (None, {"key": "a"})
    bound = 3

    def some(batches):
        yield from (batch.slice(0, bound) for batch in twice(batches))

    steps, _ = parse_steps({STEPS_OPTION: SourceSteps.of("r", "s", some).to_option()})
    assert steps is not None
    batch = pa.record_batch({"a": [1, 2, 3, 4]})
    assert list(steps.step()(iter([batch]))) == [batch.slice(0, 3)] * 2


class Bomb:
    def __reduce__(self):
        return (exec, ("raise RuntimeError('loaded')",))


def test_the_program_is_not_loaded_until_it_is_asked_for():
    bomb = SourceSteps("r", "s", base64.b64encode(pickle.dumps(Bomb())).decode())
    steps, _ = parse_steps({STEPS_OPTION: bomb.to_option()})
    assert steps is not None
    again = pickle.loads(pickle.dumps(steps))  # as it goes to a task
    with pytest.raises(RuntimeError, match="loaded"):
        again.step()


@pytest.mark.parametrize(
    "value",
    ["", "mine", "3", "[1, 2, 3]", "{}", '{"rows": 1, "schema": 2, "program": 3}', '{"rows": "r", "other": "o"}'],
)
def test_what_nothing_of_ours_wrote_is_refused(value):
    with pytest.raises(OptionError, match=f"{STEPS_OPTION}="):
        parse_steps({STEPS_OPTION: value})
