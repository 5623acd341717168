"""State by shards of keys: columnar frames between Spark's tasks, pages of rows in Spark's state store."""
