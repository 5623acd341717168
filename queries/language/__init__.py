"""The language of continuous queries: SQL with windows on streams, bound to relations."""
