"""Steps on Arrow batches that run in the task that reads the rows."""
