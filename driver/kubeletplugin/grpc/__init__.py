"""The gRPC services of the kubelet plugin, which the kubelet calls over unix sockets."""
