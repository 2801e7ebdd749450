"""The format of the kubelet plugin's checkpoint files. Each schema of the records has a module."""
