"""The steps of a scenario: what its lines do to a simulation.

    client NAME [at HOST] [expiry SECONDS] [will TOPIC [delay SECONDS]]
                                     connects, with a session that stays; without `at`: anywhere
    subscribe NAME FILTER QOS        unsubscribe NAME FILTER
    publish NAME TOPIC TEXT QOS [retain] [expiry SECONDS]  TEXT `-` is an empty payload
    move NAME HOST     drop NAME     disconnect NAME       (move: connects there, wherever it is; drop: without a word)
    crash HOST...      start HOST... wipe HOST             (crash: at once; wipe: its disk, while it is down)
    leave HOST...                                          (told to leave for good; its process ends when it has left)
    hang HOST          continue HOST
    dark HOST          light HOST                          (cut off from all others)
    cut HOST HOST      mend HOST HOST                      (one way)
    split HOST... | HOST... [| HOST...]                    mend-all
    links HOST-HOST...                                     (no other links work, in either direction)
    reset HOST HOST    slow HOST HOST TIME
    full HOST          free HOST     stall HOST TIME       clock HOST TIME
    join HOST...       stutter HOST STOP GO TIME           (stutter: stopped and going on in turn, for that time)
    loop HOST LIFE TIME                                    (killed and started again, each time after at most LIFE)
    pace HOST PERCENT  empty HOST                          (pace: of its clock; empty: its disk, under the same id)
    evict HOST HOST    forget HOST HOST [force]            (orders to the first one, as over HTTP)
    copy HOST          restore HOST  clone HOST HOST       (of its folder; clone: at a machine that has no node)
    doubt HOST                                             (its next process knows that the folder was set back)
    ask                                                    (probes demand that nodes that are ready answer)
    run TIME           wait          rest                  (wait: until clients are idle; rest: heal, check everything)
    expect NAME TEXT                 expect-not NAME TEXT  (what its application has got)

Times are like 20ms or 3s. Owns the meaning of each step; the format of the file is `folkmoot.sim.scenario`'s.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.mqtt.packet import V5, Properties, Publish
from folkmoot.sim.client import Client
from folkmoot.sim.fault_cluster import ClusterFaults
from folkmoot.sim.fault_topology import TopologyFaults
from folkmoot.sim.host import Host
from folkmoot.sim.mesh import Mesh
from folkmoot.sim.profile import Profile
from folkmoot.sim.run import Simulation
from folkmoot.sim.site import FAITHFUL
from folkmoot.store.memory import MemoryStore

__all__ = ["Script", "ScriptError", "parse_steps"]


class ScriptError(ValueError):
    """A line that means nothing."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"line {number}: {text}")


def parse_steps(lines: list[tuple[int, str]]) -> list[tuple[int, list[str]]]:
    """Return (number of the line, words) of each step; raises ScriptError for a word that is no step."""
    steps: list[tuple[int, list[str]]] = []
    for number, line in lines:
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        least = _STEPS.get(words[0])
        if least is None:
            raise ScriptError(number, f"{words[0]!r} is no step; there are: {', '.join(_STEPS)}")
        if len(words) - 1 < least:
            raise ScriptError(number, f"{words[0]} needs {least} words after it")
        steps.append((number, words))
    return steps


class Script:
    """Plays steps on a simulation, whose own clients do nothing."""

    def __init__(self, simulation: Simulation, steps: list[tuple[int, list[str]]]) -> None:
        self.simulation = simulation
        self.world = simulation.world
        self.steps = steps
        self.clients: dict[str, Client] = {}
        self.folders: dict[str, MemoryStore] = {}  # copies, by machine
        self._line = 0
        workload = simulation.workload
        workload.actors.clear()
        workload.watchers.clear()
        workload.replayers.clear()

    def run(self) -> None:
        """Play all steps, then heal and check."""
        for number, words in self.steps:
            self._line = number
            self.world.note("script", " ".join(words))
            name = "step_" + words[0].replace("-", "_")
            play: Callable[[list[str]], None] = getattr(self, name)
            play(words[1:])
            if self.world.violations:
                return
        self.step_rest([])

    # Names

    def _host(self, name: str) -> Host:
        host = self.simulation.site.host(name)
        if host is None:
            raise ScriptError(self._line, f"there is no host {name!r}")
        return host

    def _client(self, name: str) -> Client:
        if name not in self.clients:
            raise ScriptError(self._line, f"there is no client {name!r}")
        return self.clients[name]

    def _time(self, text: str) -> int:
        for unit, size in (("ms", MILLISECOND), ("us", 1), ("s", SECOND)):
            number = text.removesuffix(unit)
            if text.endswith(unit) and number.lstrip("-").isdigit():
                return int(number) * size
        raise ScriptError(self._line, f"{text!r} is no time: say 20ms or 3s")

    @property
    def _mesh(self) -> Mesh:
        if self.simulation.mesh is None:
            raise ScriptError(self._line, "this needs more than one node")
        return self.simulation.mesh

    @property
    def _faults(self) -> ClusterFaults:
        if self.simulation.faults.cluster is None:
            raise ScriptError(self._line, "this needs more than one node")
        return self.simulation.faults.cluster

    # Clients

    def step_client(self, words: list[str]) -> None:
        """Make a client and connect it."""
        profile = Profile(words[0], V5)
        profile.route = FAITHFUL
        profile.reconnect_us = 100 * MILLISECOND
        options = dict(zip(words[1::2], words[2::2], strict=False))
        if "expiry" in options:
            profile.expiry_s = int(options["expiry"])
        if "will" in options:
            profile.will_topic = options["will"].encode()
            profile.will_delay_s = int(options.get("delay", "0"))
        simulation = self.simulation
        client = Client(self.world, self.world.fork(), simulation.network, simulation.site, simulation.oracle, profile)
        client.make_will = simulation.workload.will
        self.clients[words[0]] = client
        simulation.workload.actors.append(client)
        client.wanted = True
        if "at" in options:
            client.next_host = self._host(options["at"])
        client.connect()

    def step_subscribe(self, words: list[str]) -> None:
        """Subscribe an online client."""
        self._online(words[0]).subscribe([(words[1].encode(), int(words[2]))], 0)

    def step_unsubscribe(self, words: list[str]) -> None:
        """Unsubscribe an online client."""
        self._online(words[0]).unsubscribe([words[1].encode()])

    def _online(self, name: str) -> Client:
        client = self._client(name)
        if not client.online:
            raise ScriptError(self._line, f"{name} is not online: let it `wait`")
        return client

    def step_publish(self, words: list[str]) -> None:
        """Publish; a client that is offline sends it when it is back."""
        client = self._client(words[0])
        payload = b"" if words[2] == "-" else words[2].encode()
        packet = Publish(words[1].encode(), payload, int(words[3]), "retain" in words[4:])
        if "expiry" in words[4:]:
            packet.properties = Properties()
            packet.properties.message_expiry = int(words[-1])
        client.outflow.publish(self.simulation.ledger.publish(client.name, packet, once=False))

    def step_move(self, words: list[str]) -> None:
        """Connect a client elsewhere, without a DISCONNECT at its present node."""
        client = self._client(words[0])
        client.next_host = self._host(words[1])
        if client.link is not None and not client.online:
            client.drop()
        else:
            client.connect()

    def step_drop(self, words: list[str]) -> None:
        """Close a client's connection without DISCONNECT; it stays away until it moves or all heals."""
        client = self._client(words[0])
        client.wanted = False
        client.drop()

    def step_disconnect(self, words: list[str]) -> None:
        """Disconnect a client; it stays away until it moves or all heals."""
        client = self._client(words[0])
        client.wanted = False
        client.disconnect(0, None)

    # Machines

    def step_crash(self, words: list[str]) -> None:
        """Kill processes at once; their systems go on."""
        hosts = [self._host(name) for name in words]
        self.simulation.trouble.weaken(hosts)
        for host in hosts:
            host.crash(is_told=True)

    def step_start(self, words: list[str]) -> None:
        """Start nodes."""
        for name in words:
            self._host(name).start()

    def step_leave(self, words: list[str]) -> None:
        """Tell nodes to leave for good."""
        self.simulation.trouble.disturb()
        for name in words:
            self._host(name).leave()

    def step_wipe(self, words: list[str]) -> None:
        """Replace the disk of a machine whose node is down."""
        self._host(words[0]).wipe()

    def step_hang(self, words: list[str]) -> None:
        """Stop a process."""
        host = self._host(words[0])
        self.simulation.trouble.weaken([host])
        host.hang()

    def step_continue(self, words: list[str]) -> None:
        """Let a process go on."""
        self._host(words[0]).go_on()

    def step_dark(self, words: list[str]) -> None:
        """Cut a machine off from all others."""
        host = self._host(words[0])
        self.simulation.trouble.fail([host])
        self.simulation.trouble.split()
        host.darken(on=True)

    def step_light(self, words: list[str]) -> None:
        """Connect a machine again."""
        self._host(words[0]).darken(on=False)

    def step_full(self, words: list[str]) -> None:
        """Fill a disk."""
        host = self._host(words[0])
        self.simulation.trouble.weaken([host])
        host.fill()
        host.disk.fill()

    def step_free(self, words: list[str]) -> None:
        """Make room on a disk."""
        self._host(words[0]).free()

    def step_stall(self, words: list[str]) -> None:
        """Let the next sync take longer."""
        host = self._host(words[0])
        self.simulation.trouble.weaken([host])
        host.stall(self._time(words[1]))

    def step_clock(self, words: list[str]) -> None:
        """Set a clock to so much before or after the true time."""
        self._host(words[0]).adjust(self._time(words[1]))

    # What only the family `topologies` has

    @property
    def _topologies(self) -> TopologyFaults:
        if self.simulation.faults.topologies is None:
            raise ScriptError(self._line, "this needs more than one node, and the option `topologies`")
        return self.simulation.faults.topologies

    def step_join(self, words: list[str]) -> None:
        """Let machines that were no members join, at once."""
        self.simulation.trouble.disturb()
        for name in words:
            host = self._host(name)
            host.member = True
            host.start()

    def step_stutter(self, words: list[str]) -> None:
        """Stop a process for a short time, again and again."""
        stop, go, lasts = [self._time(word) for word in words[1:4]]
        self._topologies.processes.start_stutter(self._host(words[0]), stop, go, lasts)

    def step_loop(self, words: list[str]) -> None:
        """Kill a process and start it, again and again."""
        life, lasts = [self._time(word) for word in words[1:3]]
        self._topologies.processes.start_loop(self._host(words[0]), lasts, life)

    def step_pace(self, words: list[str]) -> None:
        """Let a clock go at this speed."""
        self._topologies.processes.set_pace(self._host(words[0]), int(words[1]))

    def step_empty(self, words: list[str]) -> None:
        """Empty the disk of a machine whose node is down, and keep its id."""
        self._host(words[0]).wipe(same_id=True)

    def step_evict(self, words: list[str]) -> None:
        """Order a node to evict another one."""
        self._topologies.orders.give("evict", self._host(words[0]), self._host(words[1]))

    def step_forget(self, words: list[str]) -> None:
        """Order a node to forget another one."""
        orders = self._topologies.orders
        orders.give("forget", self._host(words[0]), self._host(words[1]), force="force" in words[2:])

    def step_copy(self, words: list[str]) -> None:
        """Copy the folder of a machine."""
        host = self._host(words[0])
        self.folders[host.name] = self._topologies.folders.copy_of(host)

    def step_restore(self, words: list[str]) -> None:
        """Put the copy of a folder in its place, while the node is down."""
        host = self._host(words[0])
        if host.name not in self.folders:
            raise ScriptError(self._line, f"the folder of {host.name} was not copied")
        self._topologies.folders.restore(host, self.folders[host.name])

    def step_doubt(self, words: list[str]) -> None:
        """Let the next process of a machine know that its disk lacks what it has confirmed last."""
        self._host(words[0]).incomplete = True

    def step_clone(self, words: list[str]) -> None:
        """Run a copy of a node's folder at another machine."""
        self._topologies.folders.start_clone(self._host(words[0]), self._host(words[1]))

    def step_ask(self, _words: list[str]) -> None:
        """Begin to ask all nodes, until all heals."""
        prober = self.simulation.prober
        if prober is None:
            raise ScriptError(self._line, "this needs more than one node, and the option `topologies`")
        prober.start()

    # Links between machines

    def step_cut(self, words: list[str]) -> None:
        """Block the direction from one machine to another."""
        first, second = self._host(words[0]), self._host(words[1])
        self.simulation.trouble.weaken([first, second])
        self._mesh.cut(first, second)

    def step_mend(self, words: list[str]) -> None:
        """Unblock a direction."""
        self._mesh.mend(self._host(words[0]), self._host(words[1]))

    def step_split(self, words: list[str]) -> None:
        """Cut sides off from each other."""
        sides = [[self._host(name) for name in side.split()] for side in " ".join(words).split("|")]
        self._faults.apply_split(sides)

    def step_links(self, words: list[str]) -> None:
        """Leave these links alone, and cut all others."""
        kept = {tuple(sorted(word.split("-"))) for word in words}
        names = [host.name for host in self.simulation.site.hosts]
        known = {name for pair in kept for name in pair}
        if any(len(pair) != 2 for pair in kept) or not known <= set(names):
            raise ScriptError(self._line, "say which links stay, like n1-n2 n2-n3")
        cuts = [(one, two) for one in names for two in names if one != two and tuple(sorted((one, two))) not in kept]
        self._topologies.links.apply("links", cuts, NEVER)

    def step_mend_all(self, _words: list[str]) -> None:
        """Remove all blocks between machines."""
        if self.simulation.faults.topologies is not None:
            self.simulation.faults.topologies.links.heal()
        self._mesh.heal()

    def step_reset(self, words: list[str]) -> None:
        """Break the connections between two machines."""
        names = sorted(words[:2])
        self.simulation.trouble.disturb()
        for wire in self._mesh.wires:
            if sorted([end.owner.host.name for end in wire.ends]) == names:
                wire.reset(0, 0)

    def step_slow(self, words: list[str]) -> None:
        """Make one direction slower."""
        self.simulation.trouble.disturb()
        self._mesh.slow_us[words[0], words[1]] = self._time(words[2])

    # Time

    def step_run(self, words: list[str]) -> None:
        """Let time pass."""
        until = self.world.now + self._time(words[0])
        while self.world.now < until and not self.world.violations:
            self.world.run(min(until, self.world.now + 10 * MILLISECOND))
            self.simulation.look()

    def step_wait(self, _words: list[str]) -> None:
        """Wait until every client that wants to be online is idle."""
        self.simulation.settle(self._all_idle)

    def _all_idle(self) -> bool:
        return all(client.idle or not client.wanted for client in self.clients.values())

    def step_rest(self, _words: list[str]) -> None:
        """Heal everything, wait for rest and check all promises."""
        if self.simulation.heal():
            self.simulation.judge()

    # What applications have received

    def _has(self, name: str, payload: str) -> bool:
        numbers = [m.number for m in self.simulation.ledger.messages if m.payload == payload.encode()]
        records = [record for record in self.simulation.ledger.records if record.client_id == name]
        return any(number in record.copies for record in records for number in numbers)

    def step_expect(self, words: list[str]) -> None:
        """Demand that a client has got a message."""
        if not self._has(words[0], words[1]):
            self.world.violate("script", f"line {self._line}: {words[0]} has not got {words[1]}")

    def step_expect_not(self, words: list[str]) -> None:
        """Demand that a client has not got a message."""
        if self._has(words[0], words[1]):
            self.world.violate("script", f"line {self._line}: {words[0]} has got {words[1]}")


_STEPS = {
    "client": 1,
    "subscribe": 3,
    "unsubscribe": 2,
    "publish": 4,
    "move": 2,
    "drop": 1,
    "disconnect": 1,
    "crash": 1,
    "start": 1,
    "leave": 1,
    "wipe": 1,
    "hang": 1,
    "continue": 1,
    "dark": 1,
    "light": 1,
    "cut": 2,
    "mend": 2,
    "split": 3,
    "mend-all": 0,
    "reset": 2,
    "slow": 3,
    "full": 1,
    "free": 1,
    "stall": 2,
    "clock": 2,
    "join": 1,
    "stutter": 4,
    "loop": 3,
    "pace": 2,
    "empty": 1,
    "evict": 2,
    "forget": 2,
    "copy": 1,
    "restore": 1,
    "doubt": 1,
    "clone": 2,
    "links": 1,
    "ask": 0,
    "run": 1,
    "wait": 0,
    "rest": 0,
    "expect": 2,
    "expect-not": 2,
}
"""Every step, and its number of words."""
