"""Manifests of built-in kinds as users write them: every problem of a document, and its form in the model's version.

Terms: a *document* is the JSON object of one manifest, a *problem* a field path with a sentence about it.

Data flow: a document -> ``claim_documents`` or ``pod_documents`` -> its problems; a document without problems ->
``claim_documents.convert_to_v1`` -> the form that ``kerf_dra.api.resource.v1`` reads. Only the parts about devices are
checked: Kerf knows no other fields of pods. Kerf's own kinds are decoded by ``kerf_dra.api.kerf.decoder``.
"""
