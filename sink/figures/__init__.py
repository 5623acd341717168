"""What each commit reports: counts and staleness."""
