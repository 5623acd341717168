"""Continuous queries over streams and relations: their expressions, their relational algebra, their language."""
