"""The division of a continuous query's plan among slots, and the table of its result."""
