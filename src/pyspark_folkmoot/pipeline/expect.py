"""Expectations: what must hold for every row of a view, and what happens to other rows.

As in a SQL CHECK constraint, a row passes unless the expression is false: NULL passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pyspark_folkmoot.pipeline.model import Expectation
from pyspark_folkmoot.pipeline.part import OBSERVED, ORIGIN

__all__ = ["broken", "drops", "observed", "with_expectations"]


Masked = Callable[[str], str]


def drops(expectations: Sequence[Expectation]) -> list[Expectation]:
    """Return the expectations that drop rows."""
    return [found for found in expectations if found.otherwise == "drop"]


def holds(expectation: Expectation) -> Column:
    """Return whether an expectation holds for a row."""
    return f.coalesce(f.expr(expectation.check).cast("boolean"), f.lit(True))


def _clear(text: str) -> str:
    return text


def with_expectations(frame: DataFrame, view: str, expectations: Sequence[Any], masked: Masked = _clear) -> DataFrame:
    """Return the rows that pass or are kept; a row that violates an expectation with `fail` ends the query.

    `expectations` are models or mappings with the keys of the file; `masked` removes secrets from messages.
    """
    found = [item if isinstance(item, Expectation) else Expectation.model_validate(item) for item in expectations]
    keep: Any = f
    for expectation in found:
        if expectation.otherwise == "drop":
            keep = keep.when(~holds(expectation), f.lit(False))
    # In one expression, after the drops: Spark may reorder filters, but not the branches of an expression.
    for expectation in found:
        if expectation.otherwise == "fail":
            text = f.concat(
                f.lit(f"expectation '{expectation.name}' of '{view}' does not hold ({masked(expectation.check)}): "),
                _row(frame),
            )
            keep = keep.when(~holds(expectation), f.raise_error(text).cast("boolean"))
    return frame if keep is f else frame.where(keep.otherwise(f.lit(True)))


def observed(frame: DataFrame, view: str, expectations: Sequence[Expectation]) -> DataFrame:
    """Return `frame`, observed: `rows`, and for expectation number n the violating rows as `broken_n`."""
    if not expectations:
        return frame
    counts = [f.count_if(~holds(found)).alias(f"broken_{number}") for number, found in enumerate(expectations)]
    return frame.observe(OBSERVED + view, f.count(f.lit(1)).alias("rows"), *counts)


def broken(frame: DataFrame, expectations: Sequence[Expectation], masked: Masked = _clear) -> DataFrame:
    """Return the rows that an expectation drops, with `_row` (as JSON), `_expectation` and a masked `_reason`."""
    dropping = drops(expectations)
    names = f.concat_ws(", ", *[f.when(~holds(found), f.lit(found.name)) for found in dropping])
    reasons = f.concat_ws("; ", *[f.when(~holds(found), f.lit(f"not {masked(found.check)}")) for found in dropping])
    rows = frame.withColumns({"_expectation": names, "_reason": reasons, "_row": _row(frame)})
    return rows.where(f.col("_expectation") != "")


def _row(frame: DataFrame) -> Column:
    columns = [f.col(f"`{name}`") for name in frame.columns if name != ORIGIN]
    return f.to_json(f.struct(*columns)) if columns else f.lit("{}")
