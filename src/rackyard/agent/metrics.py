"""What the agent measures and sees, for Prometheus."""

from collections import Counter as Count
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rackyard.agent.derive import View

_STATUSES = ("True", "False", "Unknown")
_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0)


class _Latest(Collector):
    """Gauges of the latest view: what is not in it any more is gone at once."""

    def __init__(self) -> None:
        self.view: View | None = None

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        view = self.view  # one view for the whole answer, though the next may come meanwhile
        if view is None:
            return
        reads = _family("rackyard_agent_reader_up", "1 where the reader gave facts in the latest round.", "reader")
        for reading in view.readings:
            reads.add_metric([reading.reader], float(reading.facts is not None))
        yield reads
        states = _family("rackyard_node_condition", "1 for the status that a condition has.", "condition", "status")
        for one in view.conditions:
            for status in _STATUSES:
                states.add_metric([one.type, status], float(status == one.status))
        yield states
        found = _family("rackyard_node_findings", "Findings of the latest round.", "rule", "severity", "verdict")
        counts = Count((one.rule, one.severity.value, one.verdict.value) for one in view.findings)
        for key, count in sorted(counts.items()):
            found.add_metric(key, count)
        yield found
        for name, what, label, values in (
            ("gpus", "GPUs that were seen, by health.", "health", view.gpus),
            ("nics", "Ports of the compute network that were seen, by health.", "health", view.nics),
            ("nvlinks", "NVLinks that are up, and that the driver lists.", "state", view.nvlinks),
        ):
            family = _family(f"rackyard_node_{name}", what, label)
            for value, count in sorted(values.items()):
                family.add_metric([value], count)
            yield family


class Metrics:
    """The metrics of one agent, in a registry of their own. Names and labels are a promise to dashboards."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._latest = _Latest()
        self.registry.register(self._latest)
        self._seconds = Histogram(
            "rackyard_agent_reader_duration_seconds",
            "How long a reader took, also where it gave nothing.",
            ["reader"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._troubles = Counter(
            "rackyard_agent_reader_troubles", "Rounds without facts.", ["reader", "reason"], registry=self.registry
        )
        self._round = Gauge(
            "rackyard_agent_last_round_timestamp_seconds", "When the latest round ended.", registry=self.registry
        )
        self._writes = Counter(
            "rackyard_agent_writes", "Writes to the node.", ["what", "result"], registry=self.registry
        )

    def show(self, view: View) -> None:
        """Take in a round."""
        for reading in view.readings:
            self._seconds.labels(reading.reader).observe(reading.seconds)
            if reading.trouble is not None:
                self._troubles.labels(reading.reader, str(reading.trouble)).inc()
        self._latest.view = view
        self._round.set_to_current_time()

    def wrote(self, what: str, *, failed: bool) -> None:
        """Count a write."""
        self._writes.labels(what, "failed" if failed else "ok").inc()


def _family(name: str, what: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, labels=labels)
