"""``kerf demo``: the embedded cluster, Kerf's own programs beside it as processes, and a story told on both."""
