"""Figures in pages: what was measured comes from benchmarks/results.json, and all other figures have a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from benchmarks import pages
from benchmarks.chart import COLOURS, label
from benchmarks.figure import FIGURES, figure
from benchmarks.rounds import median
from folkmoot.config import Settings
from folkmoot.config.field import walk
from folkmoot.config.unit import parse_duration, parse_size
from tests.docs.page import FENCE

RESULTS: Final = pages.load_results()
# Every figure with a unit on these pages must be measured, a default of a setting that is named beside it, or allowed.
STRICT: Final = (
    "README.md",
    "BENCHMARKS.md",
    *[f"docs/{name}.md" for name in ("capacity", "cost", "index", "limits", "receipts", "ring", "simulation")],
)
# Decisions and generated pages: what an ADR says was so at its date, and the statements of a standard are its own.
HISTORY: Final = re.compile(r"docs/(adr/.*|conformance)\.md")
DIGITS: Final = r"(?<![\w.,/#-])(\d+(?:,\d{3})*(?:\.\d+)?"
WORDS: Final = (
    r"|(?:one|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty|half an?)(?= )|(?:tens|hundreds) of(?= )"
)
RATE: Final = r"(?:\w+ )?(?:a|per) second\b|(?:messages|rows|records|connects)?/s\b"
SMALL_TIME: Final = r"(?:us|µs|ms|microseconds?|milliseconds?)\b"
RATIO: Final = r"(?:x\b|times (?:as|more|less|faster|slower|cheaper))"
MEMORY: Final = r"(?:KB|kB|MB|GB|kilobytes?|megabytes?|gigabytes?)(?:/s)?\b"  # of machines; limits are powers of 1024
SHARE: Final = r"percent\b|%"
LIMIT: Final = r"(?:KiB|MiB|GiB)(?:/s)?\b"
TIME: Final = r"(?:s|min|h|seconds?|minutes?|hours?)\b"
SPEED: Final = re.compile(rf"{DIGITS})[ -]?({RATE}|{SMALL_TIME}|{RATIO}|{MEMORY})")
ANY: Final = re.compile(rf"{DIGITS}{WORDS})[ -]?({RATE}|{SMALL_TIME}|{RATIO}|{MEMORY}|{SHARE}|{LIMIT}|{TIME})")
BLOCK: Final = re.compile(r"<!-- begin: .*? -->.*?<!-- end: .*? -->", re.DOTALL)
CODE: Final = re.compile(r"`([^`\n]*)`")

# Figures that nobody measured, by page, with the reason why each is there.
ALLOWED: Final[dict[str, dict[str, str]]] = {
    "README.md": {
        "two hours": "the demonstration's rule for an alert",
        "3 seconds": "the option -W of the transcript",
    },
    "BENCHMARKS.md": {
        "100 %": "a bound, not a measurement",
        "2,000 messages a second": "RATE in benchmarks/retained.py",
        "15,000 /s": "STEADY_RATE in benchmarks/cluster.py",
        "2,000 /s": "RATE in benchmarks/rebuild.py",
        "50 ms": "DIAL_S in benchmarks/failover.py",
        "50 messages a second": "PERIOD_S in benchmarks/attacks.py",
        "512 MiB": "BUDGET_MEBIBYTES in benchmarks/attacks.py",
        "ten times as": "FACTORS in benchmarks/attacks.py",
        "2 ms": "the delay of links in tests/membership/simulated_control.py",
        "4 ms": "the time of a disk there",
        "9 seconds": "the election timeout in server/raft.go of NATS",
        "100 messages a second": "RATES in benchmarks/peers/section.py",
    },
    "docs/capacity.md": {
        "tens of microseconds": "the order of magnitude of other people's disks",
        "2 ms": "a recommendation",
    },
    "docs/cost.md": {"256 KiB": "the size of a page, a constant of the digests"},
    "docs/events.md": {"128 µs": "the definition of the buckets"},
    "docs/install.md": {"800 MB": "the size of packages, which pip tells"},
    "docs/jepsen.md": {
        "100 messages a second": "the default of --rate in tests/jepsen/__main__.py",
        "400 ms": "a constant of tests/jepsen/nemesis.py",
    },
    "docs/limits.md": {
        "20 ms": "LAZY_US in src/folkmoot/turn/lazy.py",
        "4 KiB": "_SMALL_BYTES in src/folkmoot/partition/retained.py",
        "1 %": "DRIFT_PERCENT in src/folkmoot/membership/lease.py",
        "8 KiB": "UNIT_BYTES in src/folkmoot/auth/login.py",
        "32 MiB": "JOINED_BYTES_MAX in src/folkmoot/runtime/password.py",
        "1 KiB": "JOINED_BYTES_MIN in src/folkmoot/runtime/password.py",
        "64 KiB": "a constant of the HTTP server",
        "30 s": "a constant of the HTTP server",
        "10 s": "a constant of the HTTP server",
        "1 KiB/s": "a constant of the HTTP server",
        "16 MiB": "a constant of the audit log",
        "32 KiB": "a constant of the WebSocket listener",
        "4 MiB": "a constant of the HTTP interface",
        "5 a second": "a constant of the log",
        "2 minutes": "a constant of the listeners",
        "16 seconds": "a constant of the membership",
        "1 s": "the length of a lease, a constant",
        "2.5 seconds": "the bound of ADR 15",
        "three seconds": "fork_ns in src/folkmoot/membership/control_option.py",
        "five seconds": "a constant of ADR 12",
        "256 KiB": "the size of a page, a constant of the digests",
    },
    "docs/operate.md": {
        "100 MB": "the sum of the bounds that follow it",
        "32 MB": "a constant of the store",
        "16 MB": "a constant of the store",
        "10 GB": "an example, computed from the setting `digest`",
        "2 ms": "computed: 2^1",
        "32 ms": "computed: 2^5",
    },
    "docs/pipeline/index.md": {"2,000 messages a second": "the rate of `make torture`"},
    "docs/ring.md": {"5 %": "the bound of the placement"},
    "docs/simulation.md": dict.fromkeys(
        (
            "300 seconds",
            "40 seconds",
            "60 %",
            "400 ms",
            "95 %",
            "80 %",
            "10 seconds",
            "20 seconds",
        ),
        "a constant of the simulator",
    ),
}


def paragraphs(page: str) -> Iterator[str]:
    """The paragraphs, list items and rows of a page, without what is generated and without transcripts."""
    text = (pages.ROOT / page).read_text(encoding="utf-8")
    text = pages.FIGURE.sub("measured", BLOCK.sub("", FENCE.sub("", text)))
    for part in re.split(r"\n(?:[ \t]*\n|(?=[ \t]*- |\|))", text):
        yield " ".join(part.split())


def defaults() -> dict[str, set[int]]:
    """The defaults of all settings that have a unit, by their last name: microseconds, or bytes."""
    found: dict[str, set[int]] = {}
    for path, field in walk(Settings):
        if isinstance(field.default, int) and not isinstance(field.default, bool):
            found.setdefault(path.rpartition(".")[2], set()).add(int(field.default))
    return found


DEFAULTS: Final = defaults()


def is_default(amount: str, unit: str, paragraph: str) -> bool:
    """Whether a figure is the default of a setting that its paragraph names."""
    values = set()
    for parse in (parse_duration, parse_size):
        try:
            values.add(parse(f"{amount.replace(',', '')}{unit.removesuffix('/s')}"))
        except ValueError:
            continue
    names = {word.rpartition(".")[2] for word in CODE.findall(paragraph)}
    return any(values & DEFAULTS.get(name, set()) for name in names)


def hand_typed(page: str, paragraph: str) -> list[str]:
    """The figures of a paragraph that are neither measured nor defaults of settings."""
    pattern = ANY if page in STRICT else SPEED
    plain = CODE.sub("`code`", paragraph)
    return [f"{amount} {unit}" for amount, unit in pattern.findall(plain) if not is_default(amount, unit, paragraph)]


def test_every_table_and_figure_is_that_of_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert pages.main(["--check"]) == 0, capsys.readouterr()


def test_every_section_was_measured() -> None:
    named = {name.partition(".")[0] for name in FIGURES} | {pages.section_of(name) for _, name, _ in pages.TABLES}
    assert named <= set(RESULTS["sections"])


def test_the_chart_has_the_figures_of_the_results() -> None:
    # Text is drawn as paths; each has a comment with what it says.
    said = re.findall(r"<!-- (.*?) -->", (pages.ROOT / "docs" / "img" / "cpu-per-message.svg").read_text("utf-8"))
    section = RESULTS["sections"]["transient"]
    drawn = [label(median(by[name], "cpu_us")) for by in section["figures"].values() for name in COLOURS]
    assert [text for text in said if re.fullmatch(r"[\d.]+", text)][-len(drawn) :] == drawn
    assert any(section["measured"]["processor"] in text for text in said)


def test_every_figure_is_used_and_none_begins_a_line() -> None:
    texts = {page: (pages.ROOT / page).read_text(encoding="utf-8") for page in pages.pages()}
    used = {name for text in texts.values() for name, _text in pages.FIGURE.findall(text)}
    assert used == set(FIGURES)
    # Markdown takes such a line for a block of HTML, and shows its links as text.
    assert [page for page, text in texts.items() if re.search(r"^[ \t]*<!-- figure:", text, re.MULTILINE)] == []


def test_a_figure_that_is_not_that_of_the_results_is_replaced() -> None:
    text = "It takes <!-- figure: growth.files.most -->7<!-- end --> files."
    most = max(point["files"] for point in RESULTS["sections"]["growth"]["figures"]["points"])
    assert pages.fill_figures(text, RESULTS) == text.replace("7", str(most))
    assert pages.fill_figures(text, {"sections": {}}) == text
    with pytest.raises(ValueError, match=r"no figure 'failover\.luck'"):
        figure("failover.luck", "", RESULTS)


@pytest.mark.parametrize("page", [page for page in pages.pages() if not HISTORY.fullmatch(page)])
def test_no_figure_is_typed_by_hand(page: str) -> None:
    allowed = ALLOWED.get(page, {})
    found = [(text, part) for part in paragraphs(page) for text in hand_typed(page, part)]
    typed = [f"{text}: {part[:200]}" for text, part in found if text not in allowed]
    assert typed == [], "take it from the results (benchmarks/figure.py), or say in ALLOWED why it is there"
    assert sorted(set(allowed) - {text for text, _part in found}) == [], "ALLOWED has what is no longer on the page"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It does 85,700 messages a second.", ["85,700 messages a second"]),
        ("clients go on within 0.12 s", ["0.12 s"]),
        ("about 40 ms of one core, 3.3 KB, 2.5 x", ["40 ms", "3.3 KB", "2.5 x"]),
        ("takes four minutes on two cores", ["four minutes"]),
        ("asked for 15,000/s, 256 bytes, MQTT 5", ["15,000 /s"]),
        ("of `cluster.silence` (2 s)", []),
        ("of `cluster.silence` (3 s)", ["3 s"]),
        ("`link_buffer_bytes_max` is 64 MiB", []),
    ],
)
def test_figures_are_found(text: str, found: list[str]) -> None:
    assert hand_typed("README.md", text) == found
