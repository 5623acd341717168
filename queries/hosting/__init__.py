"""One streaming query behind all continuous queries: what its scan, its two stages and its tables do in a batch."""
