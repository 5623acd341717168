"""Capacity planning: staleness figures, and simulations of the queue's policies."""
