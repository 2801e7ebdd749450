"""HTTP to the API server: where it is, credentials, connections, time limits, calls on objects, and errors.

``config`` and ``kubeconfig`` find an ``Access``; ``credentials`` keeps it fresh; ``transport`` sends requests;
``client`` makes calls on objects of any kind. Nothing here keeps objects.
"""
