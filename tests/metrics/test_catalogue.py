"""The catalogue names every attribute exactly once, and in words."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from folkmoot.metrics.catalogue import COUNTER, GAUGE, HISTOGRAM, families
from folkmoot.metrics.counters import Counters, Histograms
from folkmoot.metrics.exposition import full_name
from folkmoot.metrics.histogram import Histogram


def attributes(thing: object, kind: type) -> list[str]:
    """Names of the data attributes; works for compiled classes, which have no __dict__."""
    names = [name for name in dir(thing) if not name.startswith("__")]
    return [name for name in names if isinstance(getattr(thing, name), kind)]


def named(*kinds: int) -> Counter[str]:
    return Counter(attribute for family in families() if family.kind in kinds for _, attribute in family.members)


def test_each_counter_is_named_once() -> None:
    assert named(COUNTER, GAUGE) == Counter(attributes(Counters(), int))


def test_each_histogram_is_named_once() -> None:
    assert named(HISTOGRAM) == Counter(attributes(Histograms(), Histogram))


def test_counters_are_integers_and_begin_at_zero() -> None:
    counters = Counters()
    names = [name for name in dir(counters) if not name.startswith("__")]
    assert len(names) > 50
    assert {name: getattr(counters, name) for name in names} == dict.fromkeys(names, 0)


def test_exposed_names_are_unique_and_lower_case() -> None:
    names = [full_name(family) for family in families()]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in names)


def test_each_family_says_what_it_means() -> None:
    for family in families():
        assert family.meaning[0].isupper() or family.meaning[0].isdigit()
        assert not family.meaning.endswith(".")
        assert "\n" not in family.meaning
        assert family.unit
        assert len({value for value, _ in family.members}) == len(family.members)
        assert bool(family.label) is (len(family.members) > 1)


def test_each_figure_is_counted_somewhere() -> None:
    """A name in the catalogue that stays 0 for ever would say that nothing of the kind has happened."""
    source = Path(__file__).parents[2] / "src" / "folkmoot"
    parts = [path for path in source.rglob("*.py") if path.parent.name != "metrics"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in parts)
    counted = set(re.findall(r"\.(\w+) [-+]?= ", text))
    assert set(named(COUNTER, GAUGE)) - counted == set()
