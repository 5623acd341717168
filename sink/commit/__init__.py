"""One Delta commit per batch: who writes, which batch it is, the steps, the lease."""
