"""The second driver of the core: one process, virtual time, a seed; simulated network, disk, clients and faults.

A run is a function of its seed: nothing here reads a clock, a random source or the order of a hash table.
"""

from __future__ import annotations

from folkmoot.sim.excuse import DEMANDS, EXCUSES, JUDGED, JUDGED_MIN_PERCENT, Excuse, share_of, too_seldom
from folkmoot.sim.option import Options, UnknownOption
from folkmoot.sim.run import Result, Simulation
from folkmoot.sim.scenario import Scenario, ScriptError, parse_scenario
from folkmoot.sim.shrink import Shrinker

__all__ = [
    "DEMANDS",
    "EXCUSES",
    "JUDGED",
    "JUDGED_MIN_PERCENT",
    "Excuse",
    "Options",
    "Result",
    "Scenario",
    "ScriptError",
    "Shrinker",
    "Simulation",
    "UnknownOption",
    "parse_scenario",
    "share_of",
    "too_seldom",
]
