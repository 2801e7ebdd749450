"""The kubelet's gRPC services for DRA drivers, one module for each wire version."""
