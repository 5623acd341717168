"""Options, errors, units, and the Spark session."""
