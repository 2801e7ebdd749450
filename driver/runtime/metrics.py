"""The registry of Kerf's Prometheus metrics, and the rules for their names.

Every metric is made by the functions below when the module that counts it is imported, so that a process has one
registry and every name starts with ``kerf_``, except those that are meant for all DRA drivers. Units are Prometheus'
base units: seconds, bytes. Label values come from small closed sets: cards and profiles of one node, and names of
objects only of the claims that are prepared there, one series for each device.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

REGISTRY: Final = CollectorRegistry()
"""The metrics of this process. The library's own registry is not used: any import may fill it."""

_SHARED: Final = frozenset({"dra_device_power_watts", "dra_device_utilization_ratio"})
"""The names that a proposal has for metrics of all DRA drivers (sustainable-computing-io/kepler#2543)."""

ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)


Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""Values with those of their labels."""


class LiveGauge(Collector):
    """A gauge whose values are computed at scrape time, so they are never stale."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str]) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = labels
        self._sources: list[Callable[[], Samples]] = []

    @contextmanager
    def reading(self, source: Callable[[], Samples]) -> Iterator[None]:
        """Have the values of ``source`` inside the context; no two sources may have the same labels."""
        self._sources.append(source)
        try:
            yield
        finally:
            self._sources.remove(source)

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the present values, for the registry."""
        family = self._make_family()
        for source in self._sources:
            for labels, value in source():
                family.add_metric(labels, value)
        yield family

    def _make_family(self) -> GaugeMetricFamily | CounterMetricFamily:
        return GaugeMetricFamily(self._name, self._documentation, labels=self._labels)


class LiveCounter(LiveGauge):
    """A counter whose values are totals that are kept elsewhere, also over restarts of the process."""

    def _make_family(self) -> GaugeMetricFamily | CounterMetricFamily:
        return CounterMetricFamily(self._name, self._documentation, labels=self._labels)


def live_gauge(name: str, documentation: str, labels: Sequence[str]) -> LiveGauge:
    made = LiveGauge(_checked(name), documentation, labels)
    REGISTRY.register(made)
    return made


def live_counter(name: str, documentation: str, labels: Sequence[str]) -> LiveCounter:
    made = LiveCounter(_checked(name), documentation, labels)
    REGISTRY.register(made)
    return made


def counter(name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
    return Counter(_checked(name), documentation, labels, registry=REGISTRY)


def gauge(name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
    return Gauge(_checked(name), documentation, labels, registry=REGISTRY)


def histogram(name: str, documentation: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
    return Histogram(_checked(name), documentation, labels, buckets=buckets, registry=REGISTRY)


def _checked(name: str) -> str:
    if not name.startswith("kerf_") and name not in _SHARED:
        raise ValueError(f"metric {name!r} must start with kerf_")
    return name
