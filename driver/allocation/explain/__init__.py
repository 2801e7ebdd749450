"""Why claims do not fit: obstacles, near misses and claims in the way, worked out only after a search has failed."""
