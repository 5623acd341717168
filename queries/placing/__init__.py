"""Where the parts of a continuous query's plan are computed, and what table its result has."""
