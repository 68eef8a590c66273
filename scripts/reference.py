"""Write the generated parts of the documentation: the fields of docs/configure.md, the metrics of docs/metrics.md.

The words stand in the program (`folkmoot.config`, `folkmoot.metrics.catalogue`). Generated parts lie
between `<!-- begin: NAME -->` and `<!-- end: NAME -->`; what is around them is written by hand.

    python scripts/reference.py            write the pages
    python scripts/reference.py --check    exit with 1 if they would change
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from folkmoot.config import Settings
from folkmoot.config.base import Section
from folkmoot.config.field import default_text, element, heading, sections, valid_text
from folkmoot.metrics.catalogue import Family, families
from folkmoot.metrics.exposition import full_name, kind_name

ROOT = Path(__file__).resolve().parent.parent
# Sections with the same fields as another one: named, not repeated.
SAME_AS = {"listeners[].tls": "[tls]"}


def cell(text: str) -> str:
    """Return text that cannot end a cell of a table."""
    return text.replace("|", "\\|")


def code(text: str) -> str:
    """Return a value as code; words that stand for no value as they are."""
    return text if text in ("not set", "none, it must be set", "see above") else f"`{cell(text)}`"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def field_rows(section: type[Section]) -> list[list[str]]:
    """Return a row for each plain field of a section."""
    return [
        [f"`{name}`", code(default_text(field)), cell(valid_text(field)), cell(field.description or "")]
        for name, field in section.model_fields.items()
        if element(field.annotation) is None
    ]


def describe(section: type[Section], prefix: str = "") -> list[str]:
    """Return the parts of the page for all sections below one, in the order of the file."""
    parts = []
    for name, field in section.model_fields.items():
        inner = element(field.annotation)
        if inner is None:
            continue
        path = f"{prefix}{name}"
        parts.append(f"### `{heading(path, field)}`\n\n{field.description}")
        inside = f"{path}{sections(field)}"
        if inside in SAME_AS:
            parts.append(f"The fields are those of `{SAME_AS[inside]}`.")
            continue
        parts.append(table(["field", "default", "valid", "meaning"], field_rows(inner)))
        parts.extend(describe(inner, f"{inside}."))
    return parts


def fields_text() -> str:
    """Return every field of the configuration, section by section."""
    return "\n\n".join(describe(Settings))


def metric_row(family: Family) -> list[str]:
    """Return the row of one metric: name, labels, kind, meaning."""
    values = ", ".join(f"`{value}`" for value, _attribute in family.members if value)
    label = f"`{family.label}`: {values}" if family.label else ""
    return [f"`{full_name(family)}`", kind_name(family.kind), label, f"{cell(family.meaning)}."]


def metrics_text() -> str:
    """Return every metric in the order of the exposition."""
    return table(["metric", "kind", "label", "meaning"], [metric_row(family) for family in families()])


PARTS = (("configure.md", "fields", fields_text), ("metrics.md", "metrics", metrics_text))


def filled(text: str, name: str, content: str) -> str:
    """Return a page with new content between the markers of `name`; raises ValueError if they are not there."""
    pattern = re.compile(f"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the page has no <!-- begin: {name} --> ... <!-- end: {name} -->")
    return pattern.sub(lambda found: f"{found[1]}\n{content}\n\n{found[2]}", text)


def main(arguments: Sequence[str]) -> int:
    """Write or check the pages."""
    stale = []
    for file, name, content in PARTS:
        page = ROOT / "docs" / file
        before = page.read_text(encoding="utf-8")
        after = filled(before, name, content())
        if after != before:
            stale.append(page)
            if "--check" not in arguments:
                page.write_text(after, encoding="utf-8")
    for page in stale:
        print(f"{page.relative_to(ROOT)}: {'is not current' if '--check' in arguments else 'written'}")
    if stale and "--check" in arguments:
        print("run `python scripts/reference.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
