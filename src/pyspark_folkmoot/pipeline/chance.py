"""Whether the rows of a view depend on the time of evaluation or on chance, so that two queries would differ.

The query of a sink omits a row that an expectation drops; another query, with its own batches, puts it into the
quarantine. Both must come to the same result, so the result must depend on the row alone. Spark's plan says what is not
deterministic, and Spark's own rule removes columns on which the result does not depend.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

__all__ = ["by_chance"]

# Spark treats these as deterministic because they are constant within a batch; another query's batch differs.
MOMENTS: Final = frozenset(
    {"CurrentBatchTimestamp", "CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"}
)
ROUNDS: Final = 100
"""Each round removes columns one node further down; deeper plans are used as they are after the last round."""


def by_chance(frame: DataFrame, check: str) -> list[str]:
    """Return the functions by which the rows of `frame` for which `check` holds depend on time or chance."""
    asked = frame.where(f.expr(check)).select(f.lit(1).alias("x"))
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - the plan is in the JVM, see plan.py
    catalyst = jvm.org.apache.spark.sql.catalyst
    analysed = asked._jdf.queryExecution().analyzed()  # noqa: SLF001 - see above
    plan = catalyst.analysis.EliminateSubqueryAliases.apply(analysed)
    for _ in range(ROUNDS):
        pruned = catalyst.optimizer.ColumnPruning.apply(plan)
        if pruned.fastEquals(plan):
            break
        plan = pruned
    return list(dict.fromkeys(_of_plan(plan)))


def _of_plan(node: Any) -> list[str]:
    found = ["TABLESAMPLE"] if node.nodeName() == "Sample" else []
    for expression in _listed(node.expressions()):
        found += _of_expression(expression)
    for child in _listed(node.children()):
        found += _of_plan(child)
    return found


def _of_expression(expression: Any) -> list[str]:
    found = []
    for child in _listed(expression.children()):
        found += _of_expression(child)
    name = expression.getClass().getSimpleName()
    if name in ("ListQuery", "ScalarSubquery", "Exists"):
        return found + _of_plan(expression.plan())
    if name in MOMENTS or (not found and not expression.deterministic()):
        found.append(str(expression.sql()))
    return found


def _listed(found: Any) -> list[Any]:
    return [found.apply(number) for number in range(found.size())]
