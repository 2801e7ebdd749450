"""The kubelet's device plugin interface: one module for each version of it."""
