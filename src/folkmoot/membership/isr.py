"""What the leader of partitions asks the configuration log for when learners have everything (Kafka: AlterPartition).

Who asks for a learner counts on it from before it asks (`replica/lead.Follower.counts`), in every configuration that it
installs until the entry; see `projection` for why that is needed.
"""

from __future__ import annotations

from folkmoot.membership.command import AlterIsr, IsrItem
from folkmoot.membership.configuration import ClusterConfiguration

__all__ = ["isr_request"]


def isr_request(
    configuration: ClusterConfiguration,
    leader: int,
    filled: dict[tuple[int, int], tuple[int, int, int]],
    recovered: dict[int, tuple[int, int]],
    least: int,
) -> AlterIsr | None:
    """Return the request for all learners that are filled, and for all partitions that have recovered; None: for none.

    What is left of a partition whose last copy was given up stays in sync until its leader has said that all of it is
    the same now. So no learner is asked for before.

    Args:
        configuration: The newest that is known.
        leader: The disk that asks.
        filled: (partition, disk of the learner) -> (leader epoch, when the learner came up, version of the partition),
            all as they were when it was filled. What is in the ISR by now, or belongs to a leadership or a start that
            is over, is removed. So is what an older version says: its copy may have been dropped and begun anew since.
            Each change of a partition is another view, in which the leader finds anew who is filled.
        recovered: partition -> (leader epoch, version of the partition), as they were when its copies were the same.
            What is of another leadership or version, or was said already, is removed.
        least: `min_in_sync` of the leader. With fewer in sync it has refused what others sent it. A member that has
            skipped that view would send the rest, which counts as known where later messages are: so the end of it is
            another leadership, and all that was not confirmed comes again.
    """
    wanted: dict[int, list[int]] = {}
    for place, told in list(filled.items()):
        number, disk = place
        state = configuration.partitions[number]
        member = configuration.members.get(disk)
        leads = state.leader == leader and state.leader_epoch == told[0]
        learns = disk in state.replicas and disk not in state.isr
        same = member is not None and member.started == told[1] and state.version == told[2]
        if not leads or not learns or not same or member is None or not member.can_lead():
            del filled[place]
        elif number not in configuration.recovering:
            wanted[number] = [*wanted.get(number, state.isr), disk]
    for number, known in list(recovered.items()):
        state = configuration.partitions[number]
        same = state.leader == leader and (state.leader_epoch, state.version) == known
        if same and number in configuration.recovering:
            wanted[number] = state.isr
        else:
            del recovered[number]
    items: list[IsrItem] = []
    started: dict[int, int] = {}
    for number in sorted(wanted):
        state = configuration.partitions[number]
        anew = len(state.isr) < least and len(wanted[number]) > len(state.isr)
        items.append(IsrItem(number, state.leader_epoch, state.version, wanted[number], anew))
        for disk in wanted[number]:
            started[disk] = configuration.members[disk].started
    return AlterIsr(leader, items, started) if items else None
