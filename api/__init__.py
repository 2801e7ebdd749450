"""The internal model of DRA objects and every wire format that Kerf reads or writes. The package does no I/O.

Terms: a *model* value is independent of any version; a *kind* (``api.wire``) is one object kind in one version with its
codec; a *method* (``api.grpc_method``) is one gRPC method with its codecs.

- Kubernetes API: JSON -> ``Kind.decode`` of ``api.resource``, ``api.core`` or ``api.kerf`` -> model, and back.
- Kubelet: protobuf -> ``GrpcMethod`` of ``api.dra`` or ``api.registration`` -> model, and back.
- Plugin's checkpoint: ``api.checkpoint``. Users' documents of kerf.dev: ``api.kerf.decoder``.

Layers, lowest first: ``errors``, ``model``, ``wire`` and ``grpc_method``, the packages of versions. Nothing in ``api``
imports ``driver`` or ``cdi``.
"""
