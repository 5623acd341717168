import pyarrow as pa

from upstream.operators.relations.operator import computed

from .checking import constant


def test_zeros_of_both_signs_are_compiled_each_by_itself():
    zero, less = (computed(constant(each, pa.float64()), pa.schema([])) for each in (0.0, -0.0))
    assert zero is computed(constant(0.0, pa.float64()), pa.schema([]))
    assert zero is not less
