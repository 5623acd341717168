"""Update queues: what waits when more arrives than can be processed (tr620 §4, §5, §7.1). Pure logic, on columns."""
