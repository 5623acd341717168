"""The stored Delta table: its log, data files, statistics, indexes."""
