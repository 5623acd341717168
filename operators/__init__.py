"""Operators on update streams."""
