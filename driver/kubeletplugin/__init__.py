"""The kubelet plugin: one process per node that cuts, loads, hands out and takes back devices."""
