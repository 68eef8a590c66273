"""What a node counts: counters, gauges, histograms, the catalogue that explains them, and their text form."""

from __future__ import annotations

from folkmoot.metrics.counters import Counters, Histograms
from folkmoot.metrics.histogram import Histogram

__all__ = ["Counters", "Histogram", "Histograms"]
