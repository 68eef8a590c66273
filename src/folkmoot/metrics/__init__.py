"""Metrics of a node: counters, gauges, histograms, their catalogue, and their text format."""

from __future__ import annotations

from folkmoot.metrics.counters import Counters, Histograms
from folkmoot.metrics.histogram import Histogram

__all__ = ["Counters", "Histogram", "Histograms"]
