"""Drawn runs: nodes come and go while clients wait for answers (A1 to A6, A8, A11 to A13).

Each seed draws a cluster in which operators and machines change the members, also several at once and while leaderships
move: nodes join, leave, take their leave back, are stopped in good order, killed, put out, come back with another disk
or with an older folder, and are forgotten. A disk is lost only where another one has all that it had. In the end
everything must be as after moves of leaderships: every answer given, once and in order, every message where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.store.memory import MemoryStore
from tests.harness.simulated_cluster import Site
from tests.harness.soak import seeds
from tests.simulated_cluster.drawn import AWAY, DrawnClient
from tests.simulated_cluster.moving import HOLD_US, Run

SHAPES = (
    (2, 2, 2, 1),
    (3, 1, 2, 1),
    (3, 2, 2, 2),
    (3, 4, 3, 2),
    (4, 2, 1, 1),
    (4, 3, 3, 1),
    (5, 2, 2, 1),
    (5, 4, 3, 2),
)
CHANGES = ("join", "leave", "stay", "stop", "restart", "evict", "another disk", "old folder", "forget")
NODES_MAX = 7
GONE_US = (50 * MILLISECOND, 300 * MILLISECOND, 1200 * MILLISECOND, 4 * SECOND)
DRAWN = seeds(range(10), range(400))


class MembersRun(Run):
    """One drawn run in which the members change."""

    patience = 30

    def __init__(self, seed: int) -> None:
        super().__init__(seed, SHAPES)
        rng = self.rng
        self.troubled = True
        self.faults = [fault for fault in self.faults if fault in ("slow disk", "log", "frozen")]
        self.changes = [change for change in CHANGES if rng.random() < 0.5] or ["join", "leave"]
        self.folders: dict[str, MemoryStore] = {}  # copies of the folders of nodes, of one moment
        self.down: dict[str, str] = {}  # nodes that do not run, and why
        self.stopping: list[Site] = []
        self.joined = len(self.cluster.sites)
        self.note(f"{self.changes}")

    # -- what happens -------------------------------------------------------------------------------------------------

    def harm(self) -> None:
        """Change the members, or do one of the other faults of this run."""
        if self.rng.random() < 0.3:
            super().harm()
            return
        if self.frozen:
            self.thaw()
        change = self.rng.choice(self.changes)
        actions: dict[str, Callable[[], None]] = {
            "join": self.join,
            "leave": self.leave,
            "stay": self.stay,
            "stop": self.stop,
            "restart": self.restart,
            "evict": self.evict,
            "another disk": self.change_disk,
            "old folder": self.set_back,
            "forget": self.forget,
        }
        if self.rng.random() < 0.2:
            self.hold_long()
        for _ in range(self.rng.choice((1, 1, 2))):
            actions[change]()

    def hold_long(self) -> None:
        """Hold what a node sends to another for longer than a lease, perhaps both ways."""
        names = list(self.cluster.sites)
        one, other = self.rng.choice(names), self.rng.choice(names)
        for link in ((one, other), (other, one)):
            if one != other and link not in self.cluster.held and self.rng.random() < 0.7:
                self._hold(link, self.rng.choice((700, 1500, 3000)) * MILLISECOND)

    def join(self) -> None:
        """One more node starts, with an empty folder."""
        if len(self.cluster.sites) >= NODES_MAX:
            return
        self.joined += 1
        name = f"n{self.joined}"
        self.note(f"{name} joins")
        self.cluster.add(name)
        if self.rng.random() < 0.3:
            link = (name, self.rng.choice(list(self.cluster.sites)))
            if link[0] != link[1] and link not in self.cluster.held:
                self._hold(link, self.rng.choice(HOLD_US))

    def leave(self) -> None:
        """A node is told to leave, by itself or by another one."""
        site = self._any()
        self.note(f"{site.name} is to leave")
        if self.rng.random() < 0.5:
            site.node.leave(self.now)
        else:
            self._any().cluster_node.membership.dismiss(site.name, self.now)

    def stay(self) -> None:
        """A leave is taken back."""
        leaving = [site for site in self.cluster.live() if not site.node.stays]
        if not leaving:
            self.leave()
            return
        site = self.rng.choice(leaving)
        self.note(f"{site.name} is to stay")
        self._any().cluster_node.membership.stay(site.name, self.now)

    def stop(self) -> None:
        """A node is stopped in good order, as by SIGTERM, and started again later."""
        site = self._any()
        if site not in self.stopping:
            self.note(f"{site.name} is stopped in good order")
            self.stopping.append(site)
            site.node.depart(self.now)
            self._later(self.rng.choice((2, 5)) * SECOND, f"{site.name} is ended", lambda: self._end(site))

    def _end(self, site: Site) -> None:
        if site in self.stopping:
            self.stopping.remove(site)
            if site.up:
                site.node.stop(self.now)
                self.cluster.run()
                self._take_down(site, "stopped", self.rng.choice(GONE_US))

    def restart(self) -> None:
        """A node is killed and started again."""
        self._take_down(self._any(), "killed", self.rng.choice(GONE_US))

    def evict(self) -> None:
        """A node is put out by an order, and later started again."""
        site = self._any()
        self.note(f"{site.name} is put out")
        self._any().cluster_node.membership.evict(site.name, self.now)
        self._later(self.rng.choice(GONE_US), f"{site.name} is restarted", lambda: self._take_down(site, "put out", 0))

    def change_disk(self) -> None:
        """A node comes back with its name and an empty folder."""
        site = self._spare()
        if site is not None:
            self.note(f"{site.name} loses its disk")
            self._take_down(site, "emptied", self.rng.choice(GONE_US), MemoryStore())

    def set_back(self) -> None:
        """A node comes back with an older folder, or its folder is copied for that."""
        if not self.folders or self.rng.random() < 0.4:
            copied = self._any()
            self.folders[copied.name] = copied.store.copy()
            self.note(f"the folder of {copied.name} is copied")
            return
        site = self._spare()
        if site is not None and site.name in self.folders:
            self.note(f"{site.name} is set back")
            self._take_down(site, "set back", self.rng.choice(GONE_US), self.folders.pop(site.name))

    def forget(self) -> None:
        """A node that is away for good is forgotten."""
        if self.down:
            return
        site = self._spare()
        if site is None or len(self.cluster.live()) < 3:
            return
        self.note(f"{site.name} is away for good")
        self._remove(site)
        self.advance(self.rng.choice((500, 2000)) * MILLISECOND)
        self._order_forget(site.name)

    def _order_forget(self, name: str) -> None:
        asked = self._any()
        self.note(f"{asked.name} is to forget {name}")
        asked.cluster_node.membership.forget(name, self.now)
        self._later(5 * SECOND, f"is {name} forgotten?", lambda: self._look_whether_forgotten(name))

    def _look_whether_forgotten(self, name: str) -> None:
        known = [site.cluster_node.view for site in self.cluster.live()]
        if any(view is not None and name in view.known for view in known):
            self._order_forget(name)

    # -- who runs -----------------------------------------------------------------------------------------------------

    def _any(self) -> Site:
        return self.rng.choice(self.cluster.live())

    def _spare(self) -> Site | None:
        """Return a node whose disk may be lost, because all that it has is in sync elsewhere; None: there is none."""
        if self.down or self.cluster.replicas < 2 or self.frozen or self.later:
            return None
        for _ in range(200):
            live = self.cluster.live()
            if len(live) > 1 and all(site.node.stays for site in live) and self.cluster.settled():
                return self._none_that_votes_alone()
            self.advance(SECOND // 10)
            self.look()
        return None

    def _none_that_votes_alone(self) -> Site | None:
        """Return a node whose disk is no quorum of the voters: without that one, all would stand still."""
        voters = self.cluster.controller().cluster_node.membership.voters()
        return self.rng.choice([site for site in self.cluster.live() if voters != [site.name]])

    def _take_down(self, site: Site, why: str, us: int, folder: MemoryStore | None = None) -> None:
        if not site.up or site.name not in self.cluster.sites:
            return
        self.note(f"{site.name} is down: {why}")
        self.down[site.name] = why
        if site in self.stopping:
            self.stopping.remove(site)
        site._held = False
        self.ledger.troubles.append((site.name, self.now))
        site.kill()
        if folder is not None:
            site.store = folder
            site.settings.seeds = [other.address for other in self.cluster.sites.values() if other is not site]
        if self.cluster.live():
            self._later(us, f"{site.name} runs again", lambda: self._start(site))
        else:
            self._start(site)  # somebody has to answer clients

    def _start(self, site: Site) -> None:
        del self.down[site.name]
        site.revive()

    def _remove(self, site: Site) -> None:
        """A node does not come back."""
        site._held = False
        site.kill()
        del self.cluster.sites[site.name]
        self.folders.pop(site.name, None)

    def _remains(self, client: DrawnClient) -> None:
        """Have a client whose node has gone go to another one next."""
        if client.site not in self.cluster.sites:
            if client.state != AWAY:
                client.lose()
            client.site = self._any().name

    # -- time ---------------------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Have processes end that are to end, and all clients look at what has come."""
        for site in list(self.cluster.live()):
            if site.node.left:
                self.note(f"{site.name} has left")
                if site in self.stopping:
                    self.stopping.remove(site)
                self._remove(site)
            elif site in self.stopping and site.node.departed:
                self._end(site)
        came = super().look()
        for client in self.clients:
            self._remains(client)
        return came

    def end(self) -> None:
        """Let all changes be done; then judge."""
        if self.frozen:
            self.thaw()
        for count in range(600):
            leaving = [site for site in self.cluster.live() if not site.node.stays]
            if count > 30 and not (self.later or self.stopping or leaving):  # an order may be on its way
                break
            self.advance(SECOND // 10)
            self.look()
        while len(self.cluster.live()) < self.cluster.min_in_sync:
            self.join()
        super().end()


@pytest.mark.parametrize("seed", DRAWN)
def test_nodes_come_and_go_while_clients_wait(seed: int) -> None:
    MembersRun(seed).judged(pressed=False)
