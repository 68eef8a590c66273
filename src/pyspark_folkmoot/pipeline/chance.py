"""Whether the rows of a view depend on the moment or on chance: what two queries would judge in two ways.

A row that an expectation drops is taken out by the query of a sink and put into the quarantine by another query, in
batches of its own. Both must judge it alike, so what they judge by must be in the row. Spark is asked for its plan: it
knows what is not deterministic, and its own rule leaves out columns on which the answer does not depend.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

__all__ = ["by_chance"]

# Deterministic for Spark, because they are the same within a batch; in another query's batch they are not.
MOMENTS: Final = frozenset(
    {"CurrentBatchTimestamp", "CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"}
)
ROUNDS: Final = 100
"""Each round leaves out columns one node further down; a plan that is deeper is looked at as it is then."""


def by_chance(frame: DataFrame, check: str) -> list[str]:
    """Return what makes it a matter of the moment or of chance whether `frame` has a row for which `check` holds."""
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
