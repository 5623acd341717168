"""The papers' models of windows: one server, a row at a time. Figures are drawn from them, and tests compare shards
with them.
"""
