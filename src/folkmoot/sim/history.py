"""The history of a run: which machines ran and reached which others at any moment, by what the simulator did itself.

Owns the facts by which a checker decides whether a cause exists for what it has seen. Nothing here is what a node says.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.peer.config import ClusterConfig
from folkmoot.sim.world import World

if TYPE_CHECKING:
    from folkmoot.sim.host import Host
    from folkmoot.sim.mesh import Mesh

__all__ = ["FORK_US", "HEAL_US", "MEETING_US", "History", "Span"]

FORK_US: Final = SECOND
"""Two machines that cannot reach each other for less than this time do not become two sides."""

HEAL_US: Final = 10 * SECOND
"""Two sides are one again after this time in which both could reach each other, and the same others."""

MEETING_US: Final = SECOND
"""A machine that comes up and can reach the others has met them after this time."""

LEASE_US: Final = ClusterConfig().lease_us
"""A member whose answers come later than this has no lease, and others take its leaderships."""


class Span:
    """A time between two moments; `end_us` is NEVER while it lasts."""

    def __init__(self, begin_us: int, end_us: int) -> None:
        self.begin_us = begin_us
        self.end_us = end_us
        self.begins_us = [begin_us]  # of all the times that it has been made of
        self.counts_us = begin_us  # from when on there may be two sides

    def overlaps(self, since_us: int, until_us: int) -> bool:
        """Whether it overlaps the time between the two moments."""
        return self.begin_us <= until_us and self.end_us >= since_us


class History:
    """Looks at the machines after every change. `mesh` is set when there is one.

    copies: of each partition. least: of those, that have to be in sync, or it is not served.
    """

    def __init__(self, world: World, hosts: list[Host], copies: int, least: int = 1) -> None:
        self.world = world
        self.hosts = hosts
        self.copies = copies
        self.least = least
        self.mesh: Mesh | None = None
        self.changed_us = world.now  # when something changed last, machines or links
        self._numbers: dict[str, int] = {}
        # (since, for each machine the bits of those it can reach, whether more than half of the members run, with data)
        self._epochs: list[tuple[int, list[int], bool]] = []
        self._downs: dict[str, list[Span]] = {}  # times in which the machine did not run, hung or was cut off
        self._outs: dict[str, list[Span]] = {}  # times in which an operator had put the machine out
        self._stutters: dict[str, list[Span]] = {}  # times in which the process stood still more than half of the time
        self._failures: list[tuple[int, str, bool]] = []  # whether it was a member then
        self._pairs: dict[tuple[int, int], list[Span]] = {}  # times on different sides; for `_known` epochs
        self._cuts: dict[tuple[int, int], list[Span]] = {}  # times not together; for `_known` epochs
        self._known = 0
        # (since, by machine the bits of those that hear it, and that it does not hear)
        self._one_way: list[tuple[int, list[int]]] = []

    # What happens

    def look(self) -> None:
        """Something may have changed: take note of who reaches whom."""
        now = self.world.now
        if len(self._numbers) != len(self.hosts):
            self._numbers = {host.name: number for number, host in enumerate(self.hosts)}
        masks, one_way = self._masks()
        if self._one_way and self._one_way[-1][0] == now:
            self._one_way.pop()
        if not self._one_way or self._one_way[-1][1] != one_way:
            self._one_way.append((now, one_way))
        for host in self.hosts:
            down = not _runs(host) and bool(host.starts_us)
            if _note(self._downs.setdefault(host.name, []), down, now):
                self._failures.append((now, host.name, host.member or host.leaving))
            _note(self._outs.setdefault(host.name, []), host.put_out, now)
            _note_stutter(self._stutters.setdefault(host.name, []), host.paused, now)
        members = sum([1 for host in self.hosts if host.member])
        # One that has lost its folder is another member, and one that was evicted does not vote: neither makes the
        # others a majority.
        most = 2 * sum([1 for host in self.hosts if _runs(host) and not (host.blank or host.put_out)]) > members
        if self._epochs and self._epochs[-1][1:] == (masks, most):
            return
        self.changed_us = now
        if self._epochs and self._epochs[-1][0] == now:
            self._epochs.pop()
            self._known = 0
        self._epochs.append((now, masks, most))

    def _masks(self) -> tuple[list[int], list[int]]:
        """Return by machine the bits of those that it reaches both ways, and of those that only hear it."""
        masks: list[int] = []
        one_way: list[int] = []
        mesh = self.mesh
        for number, host in enumerate(self.hosts):
            mask = heard = 0
            if host.dark and host.node is not None and not host.hung:
                mask = 1 << number  # nobody reaches it, but it may go on as a side of its own, and be reached later
            elif _runs(host):
                mask = 1 << number
                for other, there in enumerate(self.hosts):
                    if there is not host and _runs(there) and mesh is not None and mesh.passes(host, there):
                        if mesh.passes(there, host):
                            mask |= 1 << other
                        else:
                            heard |= 1 << other
            masks.append(mask)
            one_way.append(heard)
        return masks, one_way

    # What happened

    def down(self, name: str, since_us: int, until_us: int = NEVER) -> bool:
        """Whether a machine was down, hung or cut off from everything at some moment of this time."""
        return any(span.overlaps(since_us, until_us) for span in self._downs.get(name, []))

    def put_out(self, name: str, since_us: int, until_us: int) -> bool:
        """Whether an operator had put a machine out at some moment of this time."""
        return any(span.overlaps(since_us, until_us) for span in self._outs.get(name, []))

    def speaks_one_way(self, name: str, since_us: int, until_us: int) -> bool:
        """Whether in this time a machine, or one that it reached both ways, was heard by one that it did not hear."""
        mask = self._mask_in(self._masks_at(since_us), name)
        for end, heard in self._one_way_until(since_us, until_us):
            if end > since_us and any(heard[one] for one in range(len(heard)) if mask >> one & 1):
                return True
        return False

    def hears_one_way(self, name: str, since_us: int, until_us: int) -> bool:
        """Whether at some moment of this time a machine heard another one that did not hear it."""
        bit = 1 << self._numbers[name]
        return any(hearers & bit for _end, heard in self._one_way_until(since_us, until_us) for hearers in heard)

    def _one_way_until(self, since_us: int, until_us: int) -> list[tuple[int, list[int]]]:
        """Return by machine those that only heard it, each time with its end, as it was in this time."""
        ends = [*[begin for begin, _heard in self._one_way[1:]], NEVER]
        spans = zip(self._one_way, ends, strict=True)
        return [(end, heard) for (begin, heard), end in spans if begin <= until_us and end >= since_us]

    def lacks(self, name: str, since_us: int, until_us: int) -> int:
        """Return how many members a machine did not reach both ways at once, at most, in this time."""
        number = self._numbers[name]
        most = 0
        for place, (begin, masks, _) in enumerate(self._epochs):
            end = self._epochs[place + 1][0] if place + 1 < len(self._epochs) else NEVER
            if begin <= until_us and end >= since_us and number < len(masks):
                away = [one for one, host in enumerate(self.hosts) if host.member and not masks[number] >> one & 1]
                most = max(most, len(away))
        return most

    def away(self, since_us: int) -> int:
        """Return how many members may have been away at once since then, at most, as any of them saw it.

        One that has come back may not have caught up yet, so all count that have not run all the time.
        """
        members = [number for number, host in enumerate(self.hosts) if host.member]
        most = len([number for number in members if self.down(self.hosts[number].name, since_us - HEAL_US)])
        for _begin_us, _end_us, masks in self._epochs_in(since_us, self.world.now):
            for mask in masks:
                if mask:
                    most = max(most, len([number for number in members if not mask >> number & 1]))
        return most

    def is_partly_cut(self, name: str, at_us: int) -> bool:
        """Whether at this time a machine reached another one, both ways, that did not reach the same others.

        Then the links around it form no sides yet: which machines go on together is up to the nodes.
        """
        masks = self._masks_at(at_us)
        mask = self._mask_in(masks, name)
        return any(masks[one] != mask for one in range(len(masks)) if mask >> one & 1)

    def reached_by(self, name: str, at_us: int) -> list[str]:
        """Return the machines that a machine reaches both ways at this time, itself included."""
        mask = self._mask_in(self._masks_at(at_us), name)
        return [host.name for number, host in enumerate(self.hosts) if host.name == name or mask >> number & 1]

    def _masks_at(self, at_us: int) -> list[int]:
        masks: list[int] = []
        for since_us, found, _most in self._epochs:
            if since_us > at_us:
                break
            masks = found
        return masks

    def _mask_in(self, masks: list[int], name: str) -> int:
        number = self._numbers[name]
        return masks[number] if number < len(masks) else 0

    def fell_and_forked(self, since_us: int, until_us: int) -> bool:
        """Whether a machine went down in this time, and may have been a side of its own as soon as it came up again.

        It has what it was storing, and nobody told it what the others did about that.
        """
        for host in self.hosts:
            for span in self._downs.get(host.name, []):
                begins = since_us <= span.begin_us <= until_us and span.end_us < NEVER
                if begins and self.parted(host.name, span.begin_us, span.end_us + MEETING_US):
                    return True
        return False

    def fell_at(self, name: str, since_us: int) -> int:
        """Return when a machine went down first since then, or NEVER."""
        return min([at for at, host, _member in self._failures if host == name and at >= since_us], default=NEVER)

    def fell_last(self, name: str) -> int:
        """Return when a machine went down last, 0 if it never did."""
        return max([at for at, host, _member in self._failures if host == name], default=0)

    def away_since(self, name: str, other: str) -> int:
        """Return since when a machine has not reached another one both ways; NEVER: it does."""
        number, there = self._numbers[name], self._numbers[other]
        since_us = NEVER
        for begin_us, masks, _most in self._epochs:
            if number < len(masks) and masks[number] >> there & 1:
                since_us = NEVER
            else:
                since_us = min(since_us, begin_us)
        return since_us

    def lost_disk(self, name: str, since_us: int, until_us: int) -> bool:
        """Whether what the disk of a machine had was lost, or set back, in this time."""
        emptied = self.hosts[self._numbers[name]].emptied_us
        return any(since_us <= at <= until_us for at in emptied)

    def falls(self, since_us: int, until_us: int = NEVER) -> int:
        """Return how often a machine went down in this time."""
        return sum([1 for at, _name, _member in self._failures if since_us <= at <= until_us])

    def troubled(self, since_us: int, until_us: int) -> bool:
        """Whether at some moment of this time a machine was down or put out, or two could not reach each other."""
        if self._member_falls(since_us, until_us):
            return True
        if any(span.overlaps(since_us, until_us) for spans in self._outs.values() for span in spans):
            return True
        for place, (begin, masks, _) in enumerate(self._epochs):
            end = self._epochs[place + 1][0] if place + 1 < len(self._epochs) else NEVER
            if begin <= until_us and end >= since_us and not self._is_whole(masks):
                return True
        return False

    def has_been_whole(self, since_us: int, until_us: int) -> bool:
        """Whether all members ran and reached each other for `HEAL_US` on end in this time."""
        since = NEVER
        for begin, end, masks in self._epochs_in(since_us, until_us):
            since = min(since, begin) if self._is_whole(masks) else NEVER
            if end - since >= HEAL_US:
                return True
        return False

    def came_back(self, since_us: int, until_us: int) -> bool:
        """Whether a member that had been down, had hung, or had been cut off, was there again from this time on."""
        spans = [span for host in self.hosts if host.member for span in self._downs.get(host.name, [])]
        return any(since_us <= span.end_us <= until_us for span in spans)

    def stuttered(self, since_us: int, until_us: int) -> bool:
        """Whether in this time a member stood still for more than half of a lease: its answers come too late."""
        spans = [span for host in self.hosts if host.member for span in self._stutters.get(host.name, [])]
        long = [span for span in spans if min(span.end_us, self.world.now) - span.begin_us >= LEASE_US]
        return any(span.overlaps(since_us, until_us) for span in long)

    def hand_over_end(self, since_us: int, until_us: int) -> int:
        """Return when the last member had left that may have given leaderships to others in this time; 0 for none."""
        last = 0
        for host in self.hosts:
            for told_us in host.leaves_us:
                left_us = min([at for at in host.stops_us if at > told_us], default=self.world.now)
                if told_us <= until_us and left_us >= since_us:
                    last = max(last, left_us)
        return last

    def changed(self, since_us: int, until_us: int) -> bool:
        """Whether machines came or went, or reached others than before, in this time."""
        return any(since_us <= begin_us <= until_us for begin_us, _masks, _most in self._epochs)

    def trouble_end(self, since_us: int, until_us: int) -> int:
        """Return the end of the last trouble that began before `until_us` and lasted after `since_us`; 0 for none."""
        last = max(self._member_falls(since_us, until_us), default=0)
        for place, (begin, masks, _) in enumerate(self._epochs):
            end = self._epochs[place + 1][0] if place + 1 < len(self._epochs) else self.world.now
            if begin <= until_us and end >= since_us and not self._is_whole(masks):
                last = max(last, end)
        return last

    def _member_falls(self, since_us: int, until_us: int) -> list[int]:
        """Return when members went down in this time.

        One that starts in the same moment is down in no epoch, and yet what its process knew is gone.
        """
        return [at for at, _name, member in self._failures if since_us <= at <= until_us and member]

    @property
    def whole(self) -> bool:
        """Whether at present all members run and reach each other, none of them slowly."""
        slow = self.mesh is not None and bool(self.mesh.slow_us)
        down = any(host.member and host.node is None for host in self.hosts)
        return not slow and not down and self._is_whole(self._masks()[0])

    def _is_whole(self, masks: list[int]) -> bool:
        everybody = 0
        for number, host in enumerate(self.hosts):
            if host.member or masks[number]:
                everybody |= 1 << number
        return all(mask == everybody for number, mask in enumerate(masks) if everybody >> number & 1)

    # Sides

    def apart(self, first: str, second: str, since_us: int, until_us: int = NEVER) -> bool:
        """Whether two machines may have been of different sides at some moment of this time.

        Not together are machines that cannot reach each other both ways, or do not reach the same others; one that does
        not run counts when half of the members are down, which looks like a split. They may be of different sides after
        `FORK_US` of this, or as soon as one of them reaches a third one that has not been together with the other for
        so long; and until they have been together for `HEAL_US`.
        """
        if first == second:
            return False
        one, two = self._numbers.get(first, -1), self._numbers.get(second, -1)
        assert one >= 0, f"{first} is a machine"
        assert two >= 0, f"{second} is a machine"
        self._refresh()
        pair = _pair_of(one, two)
        spans = self._pairs.get(pair)
        if spans is None:
            spans = self._pairs[pair] = self._spans_of(pair)
        now = self.world.now
        return any(span.overlaps(since_us, until_us) for span in spans if now >= span.counts_us)

    def cut(self, first: str, second: str, since_us: int, until_us: int) -> bool:
        """Whether two machines could not reach each other both ways, or not the same others, at a moment of this time.

        That may be too short for two sides, and yet long enough for the others to go on without one of them.
        """
        one, two = self._numbers[first], self._numbers[second]
        cuts = self._cuts_of(_pair_of(one, two)) if one != two else []
        return any(span.overlaps(since_us, until_us) for span in cuts)

    def _refresh(self) -> None:
        if self._known != len(self._epochs):
            self._pairs.clear()
            self._cuts.clear()
            self._known = len(self._epochs)

    def _cuts_of(self, pair: tuple[int, int]) -> list[Span]:
        self._refresh()
        known = self._cuts.get(pair)
        if known is not None:
            return known
        one, two = pair
        raw: list[Span] = []
        for begin, masks, most in self._epochs:
            lasts = bool(raw) and raw[-1].end_us == NEVER
            together = masks[one] == masks[two] and bool(masks[one] >> two & 1)
            if most and not (masks[one] and masks[two]):
                together = True  # a machine that does not run is no side, and the others know that they are most
            if together and lasts:
                raw[-1].end_us = begin
            elif not together and not lasts:
                # In between they have not met: one of them, or its link, was back for too short a time.
                if raw and begin - raw[-1].end_us < MEETING_US:
                    raw[-1].end_us = NEVER
                else:
                    raw.append(Span(begin, NEVER))
        self._cuts[pair] = raw
        return raw

    def _spans_of(self, pair: tuple[int, int]) -> list[Span]:
        found: list[Span] = []
        for span in self._cuts_of(pair):
            met_us = self._met_at(pair, span.end_us)
            end = met_us if met_us == NEVER else met_us + HEAL_US
            if found and found[-1].end_us >= span.begin_us:
                found[-1].end_us = end
            else:
                counts_us = self._counts_from(pair, span)
                if counts_us <= span.end_us:
                    found.append(Span(span.begin_us, end))
                    found[-1].begins_us.clear()
                    found[-1].counts_us = counts_us
            if found and span.end_us - span.begin_us >= FORK_US:
                found[-1].begins_us.append(span.begin_us)
        for lost_us in self._losses_of(pair):
            for span in found:
                if span.begin_us < lost_us <= span.end_us and lost_us not in span.begins_us:
                    span.begins_us.append(lost_us)
        return found + [Span(met_us, met_us + HEAL_US) for met_us in self._moves_of(pair)]

    def _met_at(self, pair: tuple[int, int], since_us: int) -> int:
        """Return since when, from a moment on, two machines reach most, and nobody who reaches more, for `HEAL_US`.

        NEVER: not yet. The lineage of one of them may be led by a machine that the other one does not reach: then it
        does not go over. So it is with a lineage that has its quorum elsewhere: of a few members, some may be of it.

        One that does not run is of no side; back again, it is of the side that it meets, if it meets most at once.
        """
        one, two = pair
        met_us = gone_us = NEVER
        for begin_us, end_us, masks in self._epochs_in(since_us, NEVER) if since_us < NEVER else ():
            mask = masks[one]
            if not (mask and masks[two]):
                gone_us, met_us = min(gone_us, max(begin_us, since_us)), NEVER
                continue
            most = 2 * mask.bit_count() > sum([1 for at, host in enumerate(self.hosts) if host.member or masks[at]])
            if most and mask == masks[two] and all(there == mask for at, there in enumerate(masks) if mask >> at & 1):
                met_us = min(met_us, gone_us, max(begin_us, since_us))
                if end_us - met_us >= HEAL_US or gone_us < NEVER:
                    return met_us
            else:
                met_us = gone_us = NEVER
        return gone_us

    def _losses_of(self, pair: tuple[int, int]) -> list[int]:
        """Return when the two, which had reached each other both ways, stopped that for at least `FORK_US`."""
        one, two = pair
        found: list[int] = []
        since_us = NEVER  # when they stopped
        before = False
        for begin_us, masks, _most in self._epochs:
            reach = bool(masks[one] >> two & 1)
            if reach and begin_us - since_us >= FORK_US:
                found.append(since_us)
            if reach or not (masks[one] and masks[two]):
                since_us = NEVER
            elif before:
                since_us = begin_us
            before = reach
        return [*found, since_us] if since_us < NEVER else found

    def _moves_of(self, pair: tuple[int, int]) -> list[int]:
        """Return when one of the two met a machine of another side while the other one did not run.

        It may go over to that side, which is larger than what is left of its own.
        """
        found: list[int] = []
        before: list[int] = []
        for begin_us, masks, _most in self._epochs:
            for near, far in (pair, pair[::-1]) if before else ():
                if before[near] and not before[far]:
                    met = _thirds_in(masks[near] & ~before[near], pair)
                    if any(self._has_ended_cut(_pair_of(one, near), begin_us) for one in met):
                        found.append(begin_us)
            before = masks
        return found

    def _has_ended_cut(self, pair: tuple[int, int], at_us: int) -> bool:
        """Whether a time ends then in which the two may have become two sides."""
        return any(cut.end_us == at_us and at_us - cut.begin_us >= FORK_US for cut in self._cuts_of(pair))

    def _counts_from(self, pair: tuple[int, int], cut: Span) -> int:
        """Return from when on the two may be of different sides: after `FORK_US`, or on one that is older."""
        counts_us = cut.begin_us + FORK_US
        for begin_us, end_us, masks in self._epochs_in(cut.begin_us, min(cut.end_us, counts_us)):
            for near, far in (pair, pair[::-1]):
                for third in _thirds_in(masks[near], pair):
                    for other in self._cuts_of(_pair_of(third, far)):
                        since = max(begin_us, other.begin_us + FORK_US)
                        if since <= min(end_us, other.end_us):
                            counts_us = min(counts_us, since)
        return counts_us

    def parted(self, name: str, since_us: int, until_us: int) -> bool:
        """Whether this machine and another one became two sides in this time."""
        one = self._numbers[name]
        for two, host in enumerate(self.hosts):
            if two != one and host.starts_us:
                self.apart(name, host.name, since_us, until_us)  # computes the spans
                spans = self._pairs[_pair_of(one, two)]
                if any(since_us <= begin_us <= until_us for span in spans for begin_us in span.begins_us):
                    return True
        return False

    def forked(self, name: str, since_us: int, until_us: int = NEVER) -> bool:
        """Whether a machine may have been of another side than some other one at some moment of this time."""
        return any(self.apart(name, host.name, since_us, until_us) for host in self.hosts if host.starts_us)

    def went_over(self, name: str, since_us: int, until_us: int) -> bool:
        """Whether a machine may have gone over from one side to another: it reached others first than at last."""
        number = self._numbers[name]
        first = last = 0
        for begin_us, masks, _ in self._epochs:
            mask = masks[number] if number < len(masks) else 0
            first = mask if begin_us <= since_us else first
            last = mask if begin_us <= until_us else last
        return first != last and self.forked(name, since_us, until_us)

    def may_have_left(self, name: str, source: str, since_us: int, until_us: int, later_us: int) -> bool:
        """Whether a machine may be of another side now than another one, `source`, was from `since_us` to `until_us`.

        Of two that are together when they meet a side of no fewer machines, one goes over before the other.
        """
        if name == source:
            return False
        near = self._near(name, later_us, self.world.now)
        few = self._fewest(self._numbers[source], since_us, until_us)
        return any(
            near >> number & 1
            and self.apart(host.name, source, since_us, until_us)
            and self._fewest(number, since_us, until_us) >= few
            for number, host in enumerate(self.hosts)
        )

    def _fewest(self, number: int, since_us: int, until_us: int) -> int:
        """Return how many a machine reached, at least, as long as two sides may have been two in this time."""
        masks = [masks[number] for _, _, masks in self._epochs_in(since_us - HEAL_US, until_us) if number < len(masks)]
        return min([mask.bit_count() for mask in masks if mask], default=0)

    def unaware(self, name: str, since_us: int, until_us: int, later_us: int, end_us: int) -> bool:
        """Whether a machine may have been later of a side without anybody who ran in this time, and has kept its disk.

        Such a side goes on from an older copy.
        """
        knows = [self._had_disk(host, since_us) and not self.down(host.name, since_us, until_us) for host in self.hosts]
        return self._has_older_copy(name, knows, since_us, later_us, end_us)

    def _has_older_copy(self, name: str, knows: list[bool], since_us: int, later_us: int, end_us: int) -> bool:
        """Whether a partition on the side of a machine may have gone on from a copy of one that does not know.

        knows: by machine, whether it knows something that happened from `since_us` on. That is so if nobody on the
        side knows, or so few that none of them need have a copy of the partition, and another one has an older copy.
        """
        here = [
            number
            for number, host in enumerate(self.hosts)
            if host.name == name
            or not (self.down(host.name, later_us, end_us) or self.apart(host.name, name, later_us, end_us))
        ]
        informed = [number for number in here if knows[number]]
        if not informed:
            return True
        members = sum([1 for host in self.hosts if host.member])
        if len(informed) > members - self.copies:
            return False
        near = self._near(name, later_us, end_us)
        return any(
            not knows[number] and (number in here or near >> number & 1) and self._had_disk(host, since_us)
            for number, host in enumerate(self.hosts)
        )

    def _near(self, name: str, since_us: int, until_us: int) -> int:
        """Return the bits of the machines that a machine reached both ways at some moment of this time."""
        number = self._numbers[name]
        near = 0
        for _begin_us, _end_us, masks in self._epochs_in(since_us, until_us):
            near |= masks[number] if number < len(masks) else 0
        return near

    def _had_disk(self, host: Host, at_us: int) -> bool:
        """Whether a machine had run before this time, and has kept its disk since."""
        return _had_started(host, at_us) and not self.lost_disk(host.name, at_us, NEVER)

    def went_on_without(self, known_us: int, since_us: int, until_us: int) -> bool:
        """Whether a machine was later of a side without anybody who knew what happened from `since_us` to `until_us`.

        Only a machine counts that ran at some moment from `known_us` on, before that. Those know of it that ran all the
        time, and those that were together with one of them for `HEAL_US` later, until they lose their disk.
        """
        older = self._ran_between(known_us, since_us)
        knows = [_had_started(host, since_us) and not self.down(host.name, since_us, until_us) for host in self.hosts]
        if all(knows[number] for number in older) and not any(
            at > since_us for host in self.hosts for at in host.emptied_us
        ):
            return False
        word = _Word(self.hosts, knows, since_us)
        without: dict[int, int] = {}  # since when it has run without any
        for begin_us, end_us, masks in self._epochs_in(until_us, self.world.now):
            informed = word.spread(begin_us, end_us, masks)
            for number, mask in enumerate(masks):
                if not mask or informed[number]:
                    without.pop(number, None)
                elif end_us - without.setdefault(number, begin_us) >= FORK_US and number in older:
                    return True
        return False

    def uninformed(self, name: str, source: str, since_us: int, until_us: int, later_us: int, end_us: int) -> bool:
        """Whether a machine may have been later of a side without anybody who knew what another one had done before.

        `source` did it from `since_us` to `until_us`. Those know of it that ran then, on the side of that machine; and
        those that were together with one of them for `HEAL_US` since, until they lose their disk. Any other machine has
        what its side had when it came, and may be of the side of each machine that it reaches both ways and that was on
        another side then.
        """
        apart = [self.apart(host.name, source, since_us, until_us) for host in self.hosts]
        knows: list[bool] = []
        for at, host in enumerate(self.hosts):
            ran = _had_started(host, since_us) and not self.down(host.name, since_us, until_us)
            knows.append(ran and not apart[at])
        word = _Word(self.hosts, knows, since_us)
        for begin_us, last_us, masks in self._epochs_in(until_us, later_us):
            word.spread(begin_us, last_us, masks)
        number = self._numbers[name]
        near = self._near(name, later_us, end_us)
        sides = [name]  # a machine of each side of which it may be
        if not knows[number]:
            for at, host in enumerate(self.hosts):
                if near >> at & 1 and apart[at] and not self.lost_disk(host.name, since_us, end_us):
                    sides.append(host.name)
        return any(self._has_older_copy(side, knows, since_us, later_us, end_us) for side in sides)

    def _epochs_in(self, since_us: int, until_us: int) -> list[tuple[int, int, list[int]]]:
        """Return (begin, end, for each machine the bits of those it can reach) of all that was in this time."""
        found: list[tuple[int, int, list[int]]] = []
        first = max(0, bisect_right(self._epochs, since_us, key=_begin_of) - 1)
        for place in range(first, len(self._epochs)):
            began_us, masks, _most = self._epochs[place]
            if began_us > until_us:
                break
            end_us = self._epochs[place + 1][0] if place + 1 < len(self._epochs) else NEVER
            if end_us > since_us:
                found.append((max(began_us, since_us), min(end_us, until_us), masks))
        return found

    def _ran_between(self, since_us: int, until_us: int) -> list[int]:
        """Return the numbers of the machines that ran at some moment of this time."""
        found: dict[int, None] = {}
        for place, (begin_us, masks, _) in enumerate(self._epochs):
            end_us = self._epochs[place + 1][0] if place + 1 < len(self._epochs) else NEVER
            if begin_us <= until_us and end_us > since_us:
                found.update({number: None for number, mask in enumerate(masks) if mask})
        return list(found)

    # The present

    def reached(self) -> list[list[Host]]:
        """Return, for each member that runs, the members that it reaches at present, itself first."""
        masks, _one_way = self._masks()
        return [
            [
                host,
                *[
                    other
                    for at, other in enumerate(self.hosts)
                    if other is not host and other.member and masks[number] >> at & 1
                ],
            ]
            for number, host in enumerate(self.hosts)
            if host.member and _runs(host)
        ]


def _begin_of(epoch: tuple[int, list[int], bool]) -> int:
    return epoch[0]


def _runs(host: Host) -> bool:
    return host.up or (host.paused and not host.dark)


def _had_started(host: Host, at_us: int) -> bool:
    return bool(host.starts_us) and host.starts_us[0] <= at_us


class _Word:
    """Which machines know of something; changes the list `knows` as time passes from `since_us` on."""

    def __init__(self, hosts: list[Host], knows: list[bool], since_us: int) -> None:
        self.hosts = hosts
        self.knows = knows
        self.at_us = since_us
        self._met: dict[int, int] = {}  # since when a machine has been together with one that knows

    def spread(self, begin_us: int, end_us: int, masks: list[int]) -> list[bool]:
        """Return which machines were together with one that knew, in a time without changes; those may learn of it."""
        for number, host in enumerate(self.hosts):
            if any(self.at_us < at <= begin_us for at in host.emptied_us):
                self.knows[number] = False
        self.at_us = begin_us
        informed = [
            any(mask >> other & 1 and masks[other] == mask and self.knows[other] for other in range(len(masks)))
            for mask in masks
        ]
        for number, near in enumerate(informed):
            if not near:
                self._met.pop(number, None)
            elif end_us - self._met.setdefault(number, begin_us) >= HEAL_US:
                self.knows[number] = True
        return informed


def _note(spans: list[Span], holds: bool, now: int) -> bool:
    """Note whether something holds from now on, in the times in which it does; return whether that begins now."""
    lasts = bool(spans) and spans[-1].end_us == NEVER
    if holds and not lasts:
        spans.append(Span(now, NEVER))
        return True
    if lasts and not holds:
        spans[-1].end_us = now
    return False


def _note_stutter(spans: list[Span], stands: bool, now: int) -> None:
    """Note whether a process stands still; it stutters on if it has run for no longer than it stood before."""
    if stands and spans and spans[-1].end_us < NEVER:
        last = spans[-1]
        if now - last.end_us <= last.end_us - last.begins_us[-1]:
            last.end_us = NEVER
            last.begins_us.append(now)
            return
    _note(spans, stands, now)


def _pair_of(one: int, two: int) -> tuple[int, int]:
    return (one, two) if one < two else (two, one)


def _thirds_in(mask: int, pair: tuple[int, int]) -> list[int]:
    """Return the numbers of the machines with a bit in a mask, without those of a pair."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1 and number not in pair]
