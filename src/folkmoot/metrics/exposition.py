"""The text form of all metrics for Prometheus (text exposition format, version 0.0.4).

Owns names, order and number format. The admin server sends the result.
"""

from __future__ import annotations

from typing import Final

from folkmoot.metrics.catalogue import COUNTER, GAUGE, Family, families
from folkmoot.metrics.counters import Counters, Histograms
from folkmoot.metrics.histogram import Histogram

__all__ = ["CONTENT_TYPE", "full_name", "render"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "folkmoot_"
# From 64 us to 34 s, each bound twice the one before: finer buckets would cost Prometheus more than they are worth.
BORDER_BITS_FIRST: Final = 6
BORDER_BITS_LAST: Final = 25


def render(counters: Counters, histograms: Histograms) -> str:
    """Return all metrics of the catalogue as Prometheus text; times in seconds, counters with the suffix `_total`."""
    lines: list[str] = []
    for family in families():
        name = full_name(family)
        lines.append(f"# HELP {name} {family.meaning}.")
        lines.append(f"# TYPE {name} {kind_name(family.kind)}")
        for value, attribute in family.members:
            if family.kind == COUNTER or family.kind == GAUGE:
                label = f'{{{family.label}="{value}"}}' if family.label else ""
                figure: int = getattr(counters, attribute)
                lines.append(f"{name}{label} {seconds(figure) if family.unit == 'us' else figure}")
            else:
                histogram: Histogram = getattr(histograms, attribute)
                lines.extend(histogram_lines(name, histogram))
    lines.append("")
    return "\n".join(lines)


def full_name(family: Family) -> str:
    """Return the name in Prometheus: prefix, name, base unit, `_total` for a counter."""
    name = PREFIX + family.name
    if family.unit == "us":
        name += "_seconds"
    elif family.unit == "bytes" and not family.name.endswith("bytes"):
        name += "_bytes"
    return name + "_total" if family.kind == COUNTER else name


def kind_name(kind: int) -> str:
    """Return the word for a kind after `# TYPE`."""
    if kind == COUNTER:
        return "counter"
    return "gauge" if kind == GAUGE else "histogram"


def histogram_lines(name: str, histogram: Histogram) -> list[str]:
    """Return the buckets, sum and count. A bound is inclusive: the largest whole microsecond below a power of two."""
    lines = [
        f'{name}_bucket{{le="{seconds((1 << bits) - 1)}"}} {histogram.below(bits)}'
        for bits in range(BORDER_BITS_FIRST, BORDER_BITS_LAST + 1)
    ]
    lines.append(f'{name}_bucket{{le="+Inf"}} {histogram.count}')
    lines.append(f"{name}_sum {seconds(histogram.total_us)}")
    lines.append(f"{name}_count {histogram.count}")
    return lines


def seconds(value_us: int) -> str:
    """Return microseconds as decimal seconds, without rounding."""
    sign = "-" if value_us < 0 else ""
    whole, rest = divmod(abs(value_us), 1_000_000)
    return f"{sign}{whole}.{rest:06d}"
