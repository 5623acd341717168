"""The shared columnar vocabulary: the system column, keys, times, buckets, newest per key."""
