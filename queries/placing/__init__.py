"""Where a plan is computed: the parts of it that shards of one key can evaluate by themselves."""
