"""The interface between the kubelet plugin and programs that find devices: one module for each version of it."""
