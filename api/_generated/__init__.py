"""Protobuf messages of the kubelet's gRPC services, generated: never edited, each imported by its one adapter only."""
