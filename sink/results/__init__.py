"""Many tables in one batch: each with a commit of its own, exactly once."""
