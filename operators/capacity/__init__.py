"""Capacity: staleness, and the policies simulated."""
