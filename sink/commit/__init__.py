"""One Delta commit per batch: the writer, the batch's identity, the steps, the lease."""
