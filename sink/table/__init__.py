"""The Delta table as it lies there: its log, data files, statistics, indexes."""
