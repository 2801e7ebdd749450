"""The devices that one node sees in published slices (GatherPools); equal content and equal pools are stored once."""
