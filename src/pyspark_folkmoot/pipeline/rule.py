"""The rules that drop rows, kept in the state folder: they may change only if sinks and quarantine are aligned.

They are separate queries. If one is ahead, it has evaluated the rows in between already; if the other evaluated them by
another rule, a row could be in neither table, or in both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pyspark_folkmoot.offset import Offsets
from pyspark_folkmoot.pipeline.checkpoint import begun, checkpoint_of, position
from pyspark_folkmoot.pipeline.expect import drops
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.fingerprint import changes, step_text, streams_kept, write_json
from pyspark_folkmoot.pipeline.graph import STEP
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import DeltaSink
from pyspark_folkmoot.pipeline.query import QUARANTINE, beside, query_views
from pyspark_folkmoot.pipeline.secret import sealed

__all__ = ["check_rules", "keep_rules", "rules_of"]

VERSION: Final = 1

Rules = dict[str, dict[str, Any]]


def rules_of(loaded: Loaded) -> Rules:
    """Return for each view that drops rows its rules, and the queries that apply them."""
    found: Rules = {}
    views = query_views(loaded)
    for query, sinks in beside(loaded, views).items():
        view = views[query]
        if view in loaded.model.sources:
            continue  # not decoded messages: `decode` cannot change with a checkpoint
        rules: dict[str, Any] = {}
        for name in loaded.graph.needed(view):
            made = loaded.graph.views[name]
            if made.kind == STEP:
                rules[f"step '{name}'"] = step_text(loaded, made.made_by)
            for expectation in drops(made.expectations):
                rules[f"expectation '{expectation.name}' of '{name}'"] = sealed(loaded, expectation.check)
        found[view] = {"rules": rules, "queries": [*sinks, query]}
    return found


def check_rules(loaded: Loaded, now: Rules) -> None:
    """Refuse changed rules if the queries that apply them are at different positions.

    Raises PipelineProblem with what has changed and the choices.
    """
    file = _file(loaded.state)
    try:
        before: Rules = json.loads(file.read_text(encoding="utf-8"))["views"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        raise PipelineProblem(f"{file} is damaged: it has the rules by which rows were dropped. Remove it") from None
    names = query_views(loaded)
    changed: dict[str, list[str]] = {}
    apart: dict[str, list[str]] = {}
    listed = ""
    for view, old in before.items():
        differ = changes(old["rules"], now.get(view, {}).get("rules", {}))
        # A removed sink gets no more rows; the rows that it lacks are in no table by intent.
        queries = [name for name in old["queries"] if name in names or name == f"{QUARANTINE}{view}"]
        if differ:
            changed[view] = queries
        if differ and not _together(loaded, queries, f"{QUARANTINE}{view}"):
            apart[view] = queries
            listed += f"\nwhat drops rows of '{view}' has changed:" + "".join(f"\n  - {line}" for line in differ)
    if not apart:
        return
    queries = list(dict.fromkeys(name for found in apart.values() for name in found))
    raise PipelineProblem(
        f"{listed[1:]}\nThe queries {', '.join(queries)} are not at the same position of the stream, or one of them "
        "has an incomplete batch: rows in between would be evaluated by the old rule in one and by the new rule in the "
        "other, and could be in neither or in both.\nThe choices:"
        "\n  - restore the previous pipeline and run it with `folkmoot pipeline run FILE --once`, after which all are "
        "at the same position; then change it"
        f"\n  - if that is no longer possible, {_anew(loaded, changed, list(apart))}"
        f"\n  - remove {file} alone: rows in between on which the two rules differ are then in "
        "neither table, or in both. They remain in the stream"
    )


def _anew(loaded: Loaded, changed: dict[str, list[str]], views: list[str]) -> str:
    """Return how to apply the new rules to everything, without a batch under the old rules.

    changed: the queries by view whose rules have changed. views: those that are not aligned. A rebuilt sink requires
    all its quarantines to be rebuilt, and these all their sinks.
    """
    names: set[str] = set()
    more = views
    while more:
        names.update(name for view in more for name in changed[view])
        views = [view for view in changed if not names.isdisjoint(changed[view])]
        more = [view for view in views if not names.issuperset(changed[view])]
    sinks = [sink for sink in loaded.model.sinks if sink.name in names]
    backfills = [f"`folkmoot pipeline backfill FILE --sink {it.name}`" for it in sinks if isinstance(it, DeltaSink)]
    others = [sink.name for sink in sinks if not isinstance(sink, DeltaSink)]
    folders = ", ".join(str(checkpoint_of(loaded.state, f"{QUARANTINE}{view}")) for view in views)
    steps = " OR ".join(f"step = '{view}'" for view in views)
    text = (
        f"apply the new rules to everything that the stream still has: remove {_file(loaded.state)} and {folders}; "
        f"remove the rows of the quarantine ({loaded.quarantine}) with `expectation IS NOT NULL AND ({steps})`"
    )
    if backfills:
        text += f"; then {', '.join(backfills)}"
    if others:
        text += (
            f". What {', '.join(others)} has cannot be taken back: rows on which the two rules differ are there "
            "and in the quarantine, or in neither"
        )
    return text


def keep_rules(loaded: Loaded, now: Rules) -> None:
    """Record the rules that apply from now on."""
    loaded.state.mkdir(parents=True, exist_ok=True)
    write_json(_file(loaded.state), {"version": VERSION, "views": now})


def _file(state: Path) -> Path:
    return state / "rules.json"


def _together(loaded: Loaded, queries: list[str], quarantine: str) -> bool:
    """Return whether all have read the same part of the streams that the quarantine reads, or nothing."""
    checkpoints = {name: checkpoint_of(loaded.state, name) for name in queries}
    if not any(begun(checkpoint) for checkpoint in checkpoints.values()):
        return True
    places: dict[str, dict[str, Offsets] | None] = {
        name: position(checkpoint, streams_kept(loaded, checkpoint)) for name, checkpoint in checkpoints.items()
    }
    mine = places.get(quarantine)
    if mine is None:
        return False
    return all(
        place is not None and all(place.get(stream, offsets) == offsets for stream, offsets in mine.items())
        for place in places.values()
    )
