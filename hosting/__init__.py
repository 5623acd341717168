"""The streaming query behind all continuous queries: scan, two stages and result tables."""
