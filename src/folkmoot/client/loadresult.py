"""The results of a load run, as attributes, as JSON and as rows of a table.

Owns the names and units of the figures. Never measures.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Final

from folkmoot.client.histogram import LatencyHistogram
from folkmoot.client.workload import Workload

__all__ = ["LatencyFigures", "LoadResult"]

NOUNS: Final = {"connect": "connects", "idle": "connections", "retained": "retained"}


@dataclass(frozen=True)
class LatencyFigures:
    """Quantiles of a latency in microseconds, of `samples` messages."""

    samples: int = 0
    p50_us: float = 0.0
    p95_us: float = 0.0
    p99_us: float = 0.0
    max_us: float = 0.0

    @classmethod
    def of(cls, histogram: LatencyHistogram) -> LatencyFigures:
        """Return the figures of a histogram."""
        p50, p95, p99 = (round(histogram.quantile(share) / 1000, 1) for share in (0.5, 0.95, 0.99))
        return cls(histogram.count, p50, p95, p99, round(histogram.max_ns / 1000, 1))

    def __str__(self) -> str:
        if not self.samples:
            return "no samples"
        shown = [f"{name} {show_us(value)}" for name, value in self.quantiles()]
        return ", ".join(shown)

    def quantiles(self) -> list[tuple[str, float]]:
        """Return (name, microseconds) of the figures."""
        return [("p50", self.p50_us), ("p95", self.p95_us), ("p99", self.p99_us), ("max", self.max_us)]


@dataclass
class LoadResult:
    """The figures of one run. `operations` are deliveries (`connect`: connections made, `idle`: connections held).

    `broker_cpu_us` is the broker's CPU time per operation, of all threads, None without its pid; `generator_us` is the
    generator's own while it had work. Shares are of one core.
    """

    workload: Workload
    seconds: float = 0.0
    published: int = 0
    operations: int = 0
    latency: LatencyFigures = field(default_factory=LatencyFigures)
    ack_latency: LatencyFigures = field(default_factory=LatencyFigures)
    broker_cpu_us: float | None = None
    broker_share: float | None = None
    broker_rss_bytes: int | None = None
    broker_rss_growth_bytes: int | None = None
    generator_us: float = 0.0
    generator_share: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def ok(self) -> bool:
        """Whether there were no errors."""
        return not self.faults

    def as_json(self) -> dict[str, object]:
        """Return all figures as a JSON object."""
        figures = asdict(self)
        figures["per_second"] = round(self.per_second, 1)
        figures["published_per_second"] = round(self.published / self.seconds, 1) if self.seconds else 0.0
        return figures

    def rows(self) -> list[tuple[str, str]]:
        """Return the figures as (name, text) for a table."""
        noun = NOUNS.get(self.workload.shape, "delivered")
        rows = [("measured", f"{self.seconds:.2f} s")]
        if self.published:
            rows.append(("published", f"{self.published:,} ({self.published / self.seconds:,.0f}/s)"))
        rows.append((noun, f"{self.operations:,} ({self.per_second:,.0f}/s)"))
        if self.latency.samples:
            rows.append(("latency", str(self.latency)))
        if self.ack_latency.samples:
            rows.append(("acknowledged after", str(self.ack_latency)))
        if self.broker_cpu_us is not None and self.broker_share is not None:
            rows.append(
                ("broker CPU", f"{self.broker_cpu_us:.3g} us per {unit_of(noun)} ({self.broker_share:.0%} of a core)")
            )
        if self.broker_rss_bytes is not None and self.broker_rss_growth_bytes is not None:
            growth = show_bytes(self.broker_rss_growth_bytes)
            rows.append(("broker memory", f"{show_bytes(self.broker_rss_bytes)} resident, {growth} more than before"))
        share = f"({self.generator_share:.0%} of a core)"
        rows.append(("generator", f"{self.generator_us:.3g} us per {unit_of(noun)} {share}"))
        rows += [(name.replace("_", " "), f"{value:,.6g}") for name, value in self.extra.items()]
        rows += [(f"FAULT {kind}", f"{count:,}") for kind, count in self.faults.items()]
        return rows


def unit_of(noun: str) -> str:
    """Return the name of one operation."""
    return {"connects": "connect", "connections": "connection"}.get(noun, "message")


def show_us(value: float) -> str:
    """Return microseconds in a suitable unit."""
    return f"{value:,.0f} us" if value < 10_000 else f"{value / 1000:,.1f} ms"


def show_bytes(value: int) -> str:
    """Return bytes in a suitable unit."""
    return f"{value / 1024:,.0f} KB" if abs(value) < 10 * 1024 * 1024 else f"{value / 1048576:,.1f} MB"
