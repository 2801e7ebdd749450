"""From published slices to the devices of one node (GatherPools); equal content and equal pools are kept once."""
