"""The table of the README says what the results say."""

from __future__ import annotations

from benchmarks.pages import ROOT
from benchmarks.readme import summary
from benchmarks.server import FOLKMOOT, MOSQUITTO
from folkmoot.client.workload import TRANSIENT


def figure(value: float) -> dict[str, dict[str, float]]:
    return {"cpu_us": {"median": value, "low": value, "high": value}}


def test_a_row_for_each_workload_and_a_line_about_the_machine() -> None:
    measured = {name: name.upper() for name in ("folkmoot", "mosquitto", "processor", "cores", "date")}
    figures = {TRANSIENT[0].name: {FOLKMOOT: figure(0.5), MOSQUITTO: figure(8.0)}}
    lines = summary({"measured": measured, "figures": figures}).splitlines()
    assert lines[2] == f"| {TRANSIENT[0].name} | 0.50 | 8.00 | 16.0 x |"
    assert lines[3] == f"| {TRANSIENT[1].name} | - | - | - |"
    assert len(lines) == 2 + len(TRANSIENT) + 2
    assert all(name.upper() in lines[-1] for name in measured)


def test_the_readme_has_the_place_for_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index("<!-- begin: bench -->") < text.index("<!-- end: bench -->")
