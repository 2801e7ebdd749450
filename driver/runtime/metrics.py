"""The registry of Kerf's Prometheus metrics, and the rules for their names.

Every metric is made by the functions below when the module that counts it is imported, so that a process has one
registry and every name starts with ``kerf_``. Units are Prometheus' base units: seconds, bytes. Label values come from
small closed sets; names of objects are no labels.
"""

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

REGISTRY: Final = CollectorRegistry()
"""The metrics of this process. The library's own registry is not used: any import may fill it."""

ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)


def counter(name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
    return Counter(_checked(name), documentation, labels, registry=REGISTRY)


def gauge(name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
    return Gauge(_checked(name), documentation, labels, registry=REGISTRY)


def histogram(name: str, documentation: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
    return Histogram(_checked(name), documentation, labels, buckets=buckets, registry=REGISTRY)


def _checked(name: str) -> str:
    if not name.startswith("kerf_"):
        raise ValueError(f"metric {name!r} must start with kerf_")
    return name
