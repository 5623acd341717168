"""Windows by shards of keys: the shards' state, and their results as the low-watermark advances."""
