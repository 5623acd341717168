"""Windows by shards of keys: what a shard keeps, and what it gives when the watermark moves."""
