"""All that pages say of what was measured: written from `benchmarks/results.json`, or checked against it.

    python -m benchmarks.pages            write the pages
    python -m benchmarks.pages --check    exit with 1 if a page would change

Two kinds of places: tables between `<!-- begin: NAME -->` and `<!-- end: NAME -->`, and single figures in sentences,
`<!-- figure: NAME -->text<!-- end -->`, with the names of `benchmarks.figure`. Owns the list of tables and the places;
it never measures.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import readme, trial
from benchmarks.figure import figure
from benchmarks.rounds import Figures
from benchmarks.table import filled

__all__ = ["FIGURE", "RESULTS", "ROOT", "SECTIONS", "fill_figures", "load_results", "main", "pages", "rendered"]

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results.json"
PAGE: Final = "BENCHMARKS.md"
# Each is a module with `run(bench) -> figures` and `table(figures) -> Markdown`, and has its markers in BENCHMARKS.md.
SECTIONS: Final = (
    "transient",
    "persistent",
    "connection",
    "retained",
    "cluster",
    "failover",
    "returning",
    "peers",
    "attacks",
    "rebuild",
    "views",
    "spark",
    "pipeline",
    "growth",
)
# The others are one run each, or count; a round of these is a run to an end, not of so many seconds.
TIMED: Final = frozenset({"transient", "persistent", "connection", "retained", "cluster", "peers"})
ROUNDS: Final = TIMED | {"views", "spark", "pipeline"}
FIGURE: Final = re.compile(r"<!-- figure: (.*?) -->(.*?)<!-- end -->", re.DOTALL)


def table(name: str, results: Figures) -> str:
    """Return the table of a section of BENCHMARKS.md, with a line about its machine."""
    section = results["sections"][name]
    text: str = importlib.import_module(f"benchmarks.{name}").table(section["figures"])
    return f"{text}\n\n{sentence(name, section['measured'])}"


def sentence(name: str, measured: Figures) -> str:
    """Return one line about hardware and method of a section."""
    virtual = "virtual machine, " if measured["virtual"] else ""
    rounds = f"median (lowest to highest) of {measured['rounds']} rounds" if name in ROUNDS else "one run"
    seconds = f" of {measured['seconds']:g} s" if name in TIMED else ""
    load = f", load before {measured['load_average_before']}" if "load_average_before" in measured else ""
    return (
        f"*Measured {measured['date']}: {measured['folkmoot']}; {measured['mosquitto']}; "
        f"{virtual}{measured['processor']}, {measured['cores']} cores, {measured['memory_gb']} GB, "
        f"{measured['system']}, fdatasync {measured['fdatasync_us']} us; "
        f"{rounds}{seconds}{load}.*"
    )


# Page, name of the place, and its text from the results.
TABLES: Final[tuple[tuple[str, str, Callable[[Figures], str]], ...]] = (
    ("README.md", "bench", lambda results: readme.summary(results["sections"]["transient"])),
    *[(PAGE, name, partial(table, name)) for name in SECTIONS],
    ("docs/pipeline/index.md", "torture", lambda results: trial.torture_table(results["sections"]["torture"])),
    ("docs/pipeline/index.md", "demo", lambda results: trial.demo_table(results["sections"]["demo"])),
)


def pages() -> Iterator[str]:
    """Every page that may have figures, as a path below the root."""
    yield from ("README.md", PAGE)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        yield str(path.relative_to(ROOT))


def fill_figures(text: str, results: Figures) -> str:
    """Return a page with every figure as the results have it; raises ValueError for an unknown name."""
    return FIGURE.sub(
        lambda found: f"<!-- figure: {found[1]} -->{figure(found[1], found[2], results)}<!-- end -->", text
    )


def rendered(page: str, text: str, results: Figures) -> str:
    """Return a page as it must be: its tables, then its figures."""
    for where, name, make in TABLES:
        if where == page and section_of(name) in results["sections"]:
            text = filled(text, name, make(results))
    return fill_figures(text, results)


def section_of(name: str) -> str:
    """The section that a table shows."""
    return "transient" if name == "bench" else name


def load_results() -> Figures:
    """Return the results so far; none before the first run."""
    if RESULTS.is_file():
        found: Figures = json.loads(RESULTS.read_text(encoding="utf-8"))
        return found
    return {"sections": {}}


def main(arguments: Sequence[str] = ()) -> int:
    """Write or check the pages; 1 when one is not current, or nothing was measured yet."""
    results = load_results()
    if not results["sections"]:
        print("nothing was measured yet: run `make bench`", file=sys.stderr)
        return 1
    stale = []
    for page in pages():
        before = (ROOT / page).read_text(encoding="utf-8")
        after = rendered(page, before, results)
        if after != before:
            stale.append(page)
            if "--check" not in arguments:
                (ROOT / page).write_text(after, encoding="utf-8")
    for page in stale:
        print(f"{page}: {'is not current' if '--check' in arguments else 'written'}")
    if stale and "--check" in arguments:
        print("run `python -m benchmarks.pages`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
