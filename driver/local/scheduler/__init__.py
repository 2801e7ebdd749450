"""The embedded cluster of the time when drivers allocated (Kubernetes 1.30): claim controller and scheduler."""
