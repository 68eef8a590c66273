"""What an operator is told about the clock of a node: events when something changes, and figures for metrics."""

from __future__ import annotations

from folkmoot.kernel.event import INFO, WARNING
from folkmoot.turn.state import State

__all__ = ["ClockReport"]


class ClockReport:
    """Reports changes of `State.clock`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._off = False
        self._divided = False

    def step(self) -> None:
        """Compare the clock with what was reported last."""
        state = self._state
        clock = state.clock
        clock.changed = False
        state.meter.shift_us = clock.shift_us
        ahead_us = clock.own_us - clock.shift_us
        if clock.set_by_us:
            state.event(WARNING, "time_set", {"by_us": clock.set_by_us, "clocks": clock.clocks})
            clock.set_by_us = 0
        if clock.off != self._off:
            self._off = clock.off
            level, kind = (WARNING, "clock_wrong") if clock.off else (INFO, "clock_right")
            state.event(level, kind, {"ahead_us": ahead_us, "clocks": clock.clocks})
        if clock.divided != self._divided:
            self._divided = clock.divided
            level, kind = (WARNING, "clocks_disagree") if clock.divided else (INFO, "clocks_agree")
            state.event(level, kind, {"clocks": clock.clocks})
        state.counters.clock_offset_us = ahead_us
        state.counters.clock_wrong = int(clock.off)
        state.counters.clocks_disagree = int(clock.divided)
