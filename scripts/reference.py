"""Write the generated parts of the documentation: configuration, metrics, pipeline files, scenarios, excuses.

The words stand in the program (`folkmoot.config`, `folkmoot.metrics.catalogue`, `pyspark_folkmoot.pipeline.model`,
`folkmoot.sim.excuse`), and in the first lines of the files in `tests/scenarios`.
Generated parts lie between `<!-- begin: NAME -->` and `<!-- end: NAME -->`; what is around them is written by hand.

    python scripts/reference.py            write the pages
    python scripts/reference.py --check    exit with 1 if they would change
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from folkmoot.config import Settings
from folkmoot.config.base import Section
from folkmoot.config.field import default_text, element, heading, sections, valid_text
from folkmoot.metrics.catalogue import Family, families
from folkmoot.metrics.exposition import full_name, kind_name
from folkmoot.sim.excuse import EXCUSES, FORKS_ONLY
from pyspark_folkmoot.pipeline.interval import interval_text
from pyspark_folkmoot.pipeline.model import kinds

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


# Keys of pipeline files whose values are times, in milliseconds inside.
TIMES = ("trigger", "patience", "compact", "vacuum")


def key_row(name: str, field: FieldInfo) -> list[str]:
    """Return the row of one key of a pipeline file."""
    default = field.default
    if field.is_required():
        text = "must be given"
    elif default is None or default is PydanticUndefined:
        text = ""
    else:
        text = f"`{interval_text(default) if name in TIMES else default}`"
    words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    valid = f": {', '.join(f'`{word}`' for word in words)}" if len(words) > 1 else ""
    return [f"`{field.alias or name}`", text, cell(field.description or "") + valid]


def keys_text(part: str) -> str:
    """Return the keys of one part of a pipeline file; of several kinds of it, those that all have come first."""
    models = kinds()[part]
    if len(models) == 1:
        return table(["key", "default", "meaning"], [key_row(*item) for item in models[0].model_fields.items()])
    shared = [name for name in models[0].model_fields if all(name in model.model_fields for model in models)]
    shared = [name for name in shared if name != "format" or part == "decode"]
    first = models[0].model_fields
    parts = []
    if shared:
        parts.append(table(["key", "default", "meaning"], [key_row(name, first[name]) for name in shared]))
    for model in models:
        rows = [key_row(name, field) for name, field in model.model_fields.items() if name not in shared]
        doc = (model.__doc__ or "").strip()
        kind = f"`format: {get_args(model.model_fields['format'].annotation)[0]}`: " if part == "decode" else ""
        parts.append(f"{kind}{doc}")
        if rows:
            parts.append(table(["key", "default", "meaning"], rows))
    return "\n\n".join(parts)


def scenarios_text() -> str:
    """Return every scenario of the tests with what it shows: the first line of its file."""
    rows = []
    for path in sorted((ROOT / "tests" / "scenarios").glob("*.txt")):
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        rows.append([f"`{path.name}`", cell(first.removeprefix("# ").removesuffix("."))])
    return table(["file", "what it shows"], rows)


def excuses_text() -> str:
    """Return the table of what excuses a case of a promise in the simulator."""
    rows = []
    for entry in EXCUSES:
        section = entry.where.partition("#")[2].replace("-", " ")
        policy = "`available`" if entry.where in FORKS_ONLY else "both"
        rows.append([entry.promise, cell(entry.condition), policy, f"[{section}]({entry.where})"])
    return table(["promise", "condition", "policy", "documented in"], rows)


PARTS: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("configure.md", "fields", fields_text),
    ("metrics.md", "metrics", metrics_text),
    ("simulation.md", "excuses", excuses_text),
    ("simulation.md", "scenarios", scenarios_text),
    *[("pipeline/reference.md", part, partial(keys_text, part)) for part in kinds()],
)


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
