"""Options, errors, units and the Spark session: what every other package stands on."""
