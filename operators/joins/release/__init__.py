"""The release of a join's results in the order of time."""
