import pytest
from kit.continuous import relation

from upstream.queries.relations.nodes import Copies
from upstream.queries.relations.nulls import never_null

from ..known import NEVER_NULL


@pytest.mark.parametrize("sql", NEVER_NULL)
def test_it_is_known_which_columns_have_a_value(sql):
    assert never_null(relation(sql)) == NEVER_NULL[sql]


def test_numbers_of_copies_are_never_null():
    assert never_null(Copies(relation("SELECT sym FROM trade [NOW]"))) == {"copy"}
