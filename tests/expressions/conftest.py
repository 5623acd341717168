import pytest

from .beside_spark import settings


@pytest.fixture(scope="module")
def interpreted(spark):
    """Spark without generated code, which takes seconds to compile for wide selects."""
    spark.sparkContext.setLogLevel("OFF")
    with settings(spark, {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}):
        yield spark
    spark.sparkContext.setLogLevel("WARN")
