"""Commands that read a cluster, or a file of ``kerf gather`` in place of it, and change nothing."""
