"""A6 and A7: one connection per client id, and a will for each end of a connection that was no goodbye."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from tests.jepsen.excuse import HEAL_US, Excuses
from tests.jepsen.ledger import FOREVER, Arrival, Connection, Ledger, matches
from tests.jepsen.verdict import Verdict

__all__ = ["check_session"]

FAREWELL_US = 3_000_000


def check_session(ledger: Ledger, excuses: Excuses, verdict: Verdict) -> None:
    """Judge takeovers and wills."""
    for client in ledger.of_client:
        one_at_a_time(excuses, verdict, excuses.accepted(client))
    wills(ledger, excuses, verdict)


def one_at_a_time(excuses: Excuses, verdict: Verdict, accepted: list[Connection]) -> None:
    """A6: whoever asks over the older connection, after the newer one was accepted, gets no answer.

    A packet that was on its way proves nothing; the answer to a question that was asked afterwards does.
    """
    for place, newer in enumerate(accepted):
        for older in accepted[:place]:
            if older.ended <= newer.began:
                continue
            verdict.judge("A6")
            for asked, answered in older.answered:
                if newer.accepted < asked and answered < newer.ended:
                    text = f"{older.client} at {older.node} is answered after it was accepted at {newer.node}, "
                    text += f"{newer.accepted / 1e6:.3f} s"
                    verdict.find("A6", "two connections", answered, text, excuses.two_alive(older, newer, answered))
                    break


def wills(ledger: Ledger, excuses: Excuses, verdict: Verdict) -> None:
    """A7: as often as it is owed, at every session that was subscribed before the connection began."""
    for client, intervals in ledger.intervals.items():
        if not ledger.of_client[client][0].expiry:
            continue
        came: dict[str, list[Arrival]] = defaultdict(list)
        for one in ledger.arrivals.get(client, []):
            if one.value in ledger.wills and one.fresh:
                came[one.value].append(one)
        for value, connection in ledger.wills.items():
            assert connection.will is not None
            begin = [
                one.begin for one in intervals if one.end == FOREVER and matches(one.filter, connection.will["topic"])
            ]
            if begin and min(begin) < connection.began and connection.accepted < FOREVER:
                verdict.judge("A7")
                judge_will(ledger, excuses, verdict, client, value, connection, came[value])


def judge_will(
    ledger: Ledger,
    excuses: Excuses,
    verdict: Verdict,
    client: str,
    value: str,
    connection: Connection,
    came: list[Arrival],
) -> None:
    """One will at one subscriber."""
    what = f"the will {value} of a connection to {connection.node}, {connection.accepted / 1e6:.3f} s"
    least, most = owed(ledger, excuses, connection)
    excuse = excuses.will(connection, came[0].at) if came else ""
    if len(came) > 1:
        places = [(one.at, one.connection) for one in came]
        sides = [excuses.will_twice(connection, one, other) for one, other in pairwise(places)]
        text = f"{client} got {what}, {len(came)} times"
        verdict.find("A7", "will twice", came[1].at, text, min(sides))
    elif len(came) < least:
        ended = "" if connection.ended == FOREVER else f" to {connection.ended / 1e6:.3f} s"
        verdict.find("A7", "will lost", connection.accepted, f"{client} never got {what}{ended}")
    elif len(came) > most:
        verdict.find("A7", "will not owed", came[0].at, f"{client} got {what}, which was to have none", excuse)
    elif came:
        alive = any(came[0].at < asked for asked, _ in connection.answered)
        early = came[0].at < connection.lived + connection.will["delay"] * 1_000_000 if connection.will else False
        delayed = connection.will is not None and connection.will["delay"] > 0
        if alive or (delayed and early):
            kind = "will of the living" if alive else "will early"
            text = f"{client} got {what} at {came[0].at / 1e6:.3f} s; it lived until {connection.lived / 1e6:.3f} s"
            verdict.find("A7", kind, came[0].at, text, excuse)


def owed(ledger: Ledger, excuses: Excuses, connection: Connection) -> tuple[int, int]:
    """How often a will is to come, at least and at most."""
    assert connection.will is not None
    delay = connection.will["delay"] * 1_000_000
    if connection.ended == FOREVER:
        return 0, 1  # until the very end of the history, which closes what is open
    if connection.goodbye == 0:
        # Nothing acknowledges a DISCONNECT: only when all was well around it is it certain to have arrived.
        return 0, int(ledger.world.disturbed(connection.ended - HEAL_US, connection.ended + FAREWELL_US))
    if not delay:
        return 1, 1
    later = [one for one in excuses.accepted(connection.client) if one.accepted > connection.accepted]
    begun = [one.began for one in ledger.of_client[connection.client] if one.number > connection.number]
    if later and later[0].present and later[0].accepted < connection.heard + delay:
        return 0, 0  # the session went on before the delay was over
    if not begun or min(begun) > connection.ended + delay + HEAL_US:
        return 1, 1
    return 0, 1
