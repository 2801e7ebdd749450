"""The embedded cluster of ``kerf demo``: a Kubernetes small enough to run inside one process.

``cluster`` starts an ``apiserver``, and as clients of it over HTTP the ResourceClaim controller (``controllers``), a
``scheduler`` and one ``kubelet`` stand-in for each node. It is Kubernetes without Kerf: what runs against it must run
against a real cluster unchanged, so it never imports ``kerf_dra.driver.controller``, ``kerf_dra.driver.kubeletplugin``
or ``kerf_dra.api.kerf``.

The kubelet stand-in speaks to plugins over the same unix sockets as a kubelet; in place of a container it writes the
OCI runtime spec with the CDI edits in it. The API server listens on loopback only, and lets in who has the token in the
address of its kubeconfig. ``tests/contract`` asks it and a real cluster the same questions.
"""
