"""The text form for Prometheus, read back by a small parser of the format."""

from __future__ import annotations

import re

from folkmoot.metrics.catalogue import families
from folkmoot.metrics.counters import Counters, Histograms
from folkmoot.metrics.exposition import full_name, render

SAMPLE = re.compile(r'^([a-z_0-9]+)(?:\{([a-z]+)="([^"\\]*)"\})? (-?[0-9]+(?:\.[0-9]{6})?)$')


def parse(text: str) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Return types by name and figures by (name, label value); each sample must follow its HELP and TYPE."""
    types: dict[str, str] = {}
    figures: dict[tuple[str, str], str] = {}
    current = ""
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in types
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            types[name] = kind
        else:
            found = SAMPLE.match(line)
            assert found, line
            assert re.sub("_(bucket|sum|count)$", "", found[1]) == current or found[1] == current
            assert (found[1], found[3] or "") not in figures
            figures[found[1], found[3] or ""] = found[4]
    return types, figures


def test_every_member_is_exposed() -> None:
    counters = Counters()
    attributes = [attribute for family in families() for _, attribute in family.members if hasattr(counters, attribute)]
    for i, attribute in enumerate(attributes):
        setattr(counters, attribute, i + 1)
    types, figures = parse(render(counters, Histograms()))
    assert set(types) == {full_name(family) for family in families()}
    for family in families():
        for value, attribute in family.members:
            if attribute in attributes and family.unit != "us":
                assert figures[full_name(family), value] == str(attributes.index(attribute) + 1)


def test_names_follow_the_conventions_of_prometheus() -> None:
    types, figures = parse(render(Counters(), Histograms()))
    assert all(name.endswith("_total") for name, kind in types.items() if kind == "counter")
    assert types["folkmoot_publish_received_total"] == "counter"
    assert types["folkmoot_received_bytes_total"] == "counter"
    assert types["folkmoot_queue_bytes"] == "gauge"
    assert types["folkmoot_commit_seconds"] == "histogram"
    assert figures["folkmoot_publish_received_total", "1"] == "0"
    assert figures["folkmoot_publish_dropped_total", "queue_full"] == "0"


def test_times_are_seconds_and_exact() -> None:
    counters = Counters()
    counters.started_us = 1_700_000_000_000_001
    _, figures = parse(render(counters, Histograms()))
    assert figures["folkmoot_start_time_seconds", ""] == "1700000000.000001"


def test_histogram_is_cumulative() -> None:
    histograms = Histograms()
    values = [0, 63, 64, 5_000, 40_000_000]
    for value in values:
        histograms.commit_us.record(value)
    _, figures = parse(render(Counters(), histograms).replace("+Inf", "inf"))
    buckets = {le: int(n) for (name, le), n in figures.items() if name == "folkmoot_commit_seconds_bucket"}
    assert len(buckets) == 21
    for le, n in buckets.items():
        assert n == sum(value <= float(le) * 1e6 + 0.1 for value in values)
    assert figures["folkmoot_commit_seconds_count", ""] == "5"
    assert figures["folkmoot_commit_seconds_sum", ""] == "40.005127"
