"""The second driver of the cores: one process, virtual time, a seed; simulated network, disk, clients and faults.

A run is a value of its seed: nothing here reads a clock, a random source or the order of a hash table.
"""

from __future__ import annotations

from folkmoot.sim.run import Result, Simulation

__all__ = ["Result", "Simulation"]
