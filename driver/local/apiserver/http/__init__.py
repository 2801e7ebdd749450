"""HTTP: from a request to its response, and the documents that describe the API.

A request runs through ``server`` (aiohttp, faults) to ``request_info`` (what its path names, as the RequestInfo of
``k8s.io/apiserver`` ``pkg/endpoints/request``), ``request_handler`` (verbs), ``query_options`` (its options), then
``registry``; ``serializer`` encodes the result. ``discovery`` and ``openapi`` answer what is not about objects.
"""
