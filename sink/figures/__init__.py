"""The figures that commits record: counts and staleness."""
