"""The kubelet plugin's records as bytes."""
