"""The environment of programs that use Spark Connect: what PySpark needs for it is beside the tested environment."""

from .environments import environment


def connect_environment() -> dict[str, str]:
    """Return variables for a program in this Python that is a client of Spark Connect, or runs pipelines."""
    (packages,) = environment("connect").parents[1].glob("lib/python*/site-packages")
    return {
        "PYTHONPATH": str(packages),
        # PySpark's own tests have servers take a free port by it.
        "SPARK_TESTING": "yes",
    }
