"""Scalar expressions with the meaning that Spark SQL gives them."""
