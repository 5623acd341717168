"""What one task does with the rows of a batch: newest rows, buckets, the two engines."""
