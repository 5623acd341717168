import pytest
from kit.continuous import relation
from kit.known_columns import NEVER_NULL

from upstream.operators.relations.plan.nodes import Copies
from upstream.operators.relations.plan.properties import never_null


@pytest.mark.parametrize("sql", NEVER_NULL)
def test_it_is_known_which_columns_have_a_value(sql):
    assert never_null(relation(sql)) == NEVER_NULL[sql]


def test_numbers_of_copies_are_never_null():
    assert never_null(Copies(relation("SELECT sym FROM trade [NOW]"))) == {"copy"}
