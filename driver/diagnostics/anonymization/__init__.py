"""Dumps without the words of their users: ``kerf gather --anonymize``.

Every text of a snapshot is split into words. A *public* word stays (``public_words``: of Kubernetes, CEL, Kerf and the
hardware that Kerf knows); any other gets a *pseudonym*, the same one wherever it occurs in this dump, with ranks in
place of letters (``pseudonyms``). So names that were equal stay equal, what a selector compares stays comparable, and
nodes keep their order: ``kerf why``, ``plan`` and ``frag`` come to the same results.

Data flow: a redacted ``ClusterState`` -> ``collect_words`` (first walk) -> ``Pseudonyms`` -> ``replace_texts`` (second
walk).
"""

from kerf_dra.driver.diagnostics.anonymization.snapshot import anonymize

__all__ = ["anonymize"]
