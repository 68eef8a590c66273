"""The text of `folkmoot config explain`: owns the layout; the fields themselves have the descriptions."""

from __future__ import annotations

import textwrap

from folkmoot.config.fault import NoSuchField, closest
from folkmoot.config.field import default_text, element, heading, valid_text, walk
from folkmoot.config.settings import Settings

__all__ = ["explain"]


def explain(name: str = "") -> str:
    """Return the fields at or below `name` ("limits", "limits.receive_max", "streams.NAME.filter"); without it, all.

    Also finds a field by its last part. Raises NoSuchField with the nearest names if there is no such field.
    """
    every = list(walk(Settings))
    wanted = name.strip().strip("[]").lower()
    chosen = [
        (path, field)
        for path, field in every
        if not wanted or path.lower() == wanted or path.lower().startswith((f"{wanted}.", f"{wanted}[]"))
    ]
    if not chosen:
        chosen = [(path, field) for path, field in every if path.rpartition(".")[2].lower() == wanted]
    if not chosen:
        names = [path for path, _ in every]
        raise NoSuchField(name, near(wanted, names))
    blocks = []
    for path, field in chosen:
        inner = element(field.annotation)
        about = textwrap.fill(field.description or "", 100, initial_indent="    ", subsequent_indent="    ")
        if inner is not None:
            blocks.append(f"{heading(path, field)}\n{about}")
        else:
            blocks.append(f"{path}\n{about}\n    valid: {valid_text(field)}\n    default: {default_text(field)}")
    return "\n\n".join(blocks) + "\n"


def near(wanted: str, paths: list[str]) -> str:
    """Return advice with the nearest name: a whole path, or its last part."""
    whole = closest(wanted, paths)
    if whole.startswith("did"):
        return whole
    lasts = {path.rpartition(".")[2]: path for path in paths}
    last = closest(wanted.rpartition(".")[2], list(lasts))
    return last if last.startswith("did") else f"sections: {', '.join(Settings.model_fields)}"
