"""NVIDIA GPUs: what of the driver is on the node, and what containers get of it."""
