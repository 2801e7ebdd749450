"""The checkpoint: the records of claims and extended resources of one node, which outlive the process."""
