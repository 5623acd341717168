"""Update queues: rows that wait when more arrive than can be processed (tr620 §4, §5, §7.1)."""
