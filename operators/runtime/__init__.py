"""Sharded operators on Spark: state, frames between operators, pages of rows."""
