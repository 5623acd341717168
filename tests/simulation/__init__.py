"""A simulator of the whole pipeline in one process, without Spark: `python -m tests.simulation --help`,
docs/simulation.md.
"""
