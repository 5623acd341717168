"""Benchmarks, run from a checkout: ``python -m benchmarks.latest``. Not part of the wheel."""
