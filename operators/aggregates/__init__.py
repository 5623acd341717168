"""Aggregates as a small columnar algebra: lift rows, combine states, retract them where that is possible, lower to results."""
