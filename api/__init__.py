"""The internal model of DRA objects and every wire format that Kerf reads or writes. The package does no I/O.

Terms: a *model* value is independent of any version; a *kind* (``kerf_dra.api.wire``) is one object kind in one version
with its codec; a *method* (``kerf_dra.api.grpc_method``) is one gRPC method with its codecs.

- Kubernetes API: JSON -> ``Kind.decode`` of ``kerf_dra.api.resource``, ``kerf_dra.api.core`` or ``kerf_dra.api.kerf``
  -> model, and back.
- Kubelet: protobuf -> ``GrpcMethod`` of ``kerf_dra.api.dra`` or ``kerf_dra.api.registration`` -> model, and back.
- Plugin's checkpoint: ``kerf_dra.api.checkpoint``. Users' documents of kerf.dev: ``kerf_dra.api.kerf.decoder``,
  of other groups: ``kerf_dra.api.manifests``.

``v1`` of ``resource.k8s.io`` is the model's own shape, ``v1beta2`` the same JSON; ``v1beta1``, ``v1alpha3`` and
``v1alpha2`` convert once. ``resource.registry`` chooses the newest version that the server and Kerf know. Values lose
unknown fields when they are read, so nothing that was read is written back: changes are patches.

Layers, lowest first: ``errors``, ``model``, ``wire`` and ``grpc_method``, the packages of versions, ``manifests``.
Nothing in ``api`` imports ``driver`` or ``cdi``.
"""
