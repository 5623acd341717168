"""Reports from operators and tasks to the planner of the next batch and to the commit."""
