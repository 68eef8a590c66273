"""The clients of a run, drawn from the seed. Owns profiles and names of topics; starts nothing."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.rng import Rng
from folkmoot.mqtt.packet import V5, V31, V311
from folkmoot.sim.profile import NEVER_EXPIRES_S, Profile
from folkmoot.sim.site import BALANCED, FAITHFUL, ROAMING
from folkmoot.sim.swarm import Swarm

__all__ = ["WILL_TOPICS", "Fleet"]

WILL_TOPICS = b"will/#"


class Fleet:
    """Profiles by role: actors publish and subscribe, replayers read streams, watchers collect all wills."""

    def __init__(self, swarm: Swarm, rng: Rng) -> None:
        self._swarm = swarm
        self._rng = rng
        self.topics = self._draw_topics()
        self.actors = [self._actor(number) for number in range(swarm.clients)]
        self.watchers = [self._watcher(number) for number in range(2 if swarm.has("wills") else 0)]
        self.replayers = [
            self._replayer(number) for number in range(2 if swarm.has("replays") and swarm.has("streams") else 0)
        ]

    def _draw_topics(self) -> list[bytes]:
        topics: list[bytes] = []
        for number in range(self._swarm.topics):
            levels = [b"t", b"%d" % (number % 3)]
            levels += [b"%d" % self._rng.below(4) for _ in range(self._swarm.depth - 1)]
            topics.append(b"/".join([*levels, b"%d" % number]))
        return topics

    def _actor(self, number: int) -> Profile:
        rng = self._rng
        swarm = self._swarm
        version = V5
        if swarm.has("version 3") and rng.chance(1, 2):
            version = V31 if rng.chance(1, 4) else V311
        profile = Profile(f"c{number}", version)
        self._limit(profile)
        profile.late = number % 2 == 1
        if swarm.has("impatience"):  # or a load balancer that looks for a better node
            profile.patience_us = [20, 200, 1000][number % 3] * MILLISECOND
        if swarm.has("transients") and rng.chance(1, 3):
            profile.clean = profile.version != V5 or rng.chance(1, 2)
            profile.expiry_s = 0
        elif swarm.has("finite sessions") and rng.chance(1, 2):
            profile.expiry_s = rng.between(1, 6 if swarm.nodes == 1 else 3)
        if swarm.has("wills") and rng.chance(1, 2):
            profile.will_topic = b"will/" + profile.client_id.encode()
            profile.will_qos = rng.between(1, 2)
            profile.will_delay_s = rng.between(0, 4 if swarm.nodes == 1 else 2) if profile.v5 else 0
        if swarm.has("producers") and profile.v5 and rng.chance(1, 2):
            profile.producer = f"p{number}"
        if swarm.config.check_passwords and rng.chance(1, 2):
            profile.username = "user"
            profile.password = b"right"
        profile.publishes = [topic for topic in self.topics if rng.chance(1, 2)] or self.topics[:1]
        profile.filters = self._filters()
        return profile

    def _limit(self, profile: Profile) -> None:
        rng = self._rng
        swarm = self._swarm
        profile.keep_alive_s = rng.between(1, 5) if rng.chance(2, 3) else 0
        profile.window = [1, 5, 40][rng.below(3)]
        profile.reconnect_us = [10, 100, 1000][rng.below(3)] * MILLISECOND
        if swarm.nodes > 1:
            profile.route = [FAITHFUL, ROAMING, BALANCED][rng.below(3)]
            if swarm.splits and not swarm.majority and profile.route == BALANCED:
                profile.route = FAITHFUL  # a client that changes sides excuses much
        if swarm.has("slow acks") and rng.chance(1, 2):
            profile.ack_us = [1, 20, 400][rng.below(3)] * MILLISECOND
        if not profile.v5:
            return
        profile.receive_max = rng.between(1, 12) if rng.chance(1, 2) else 0
        if swarm.has("aliases"):
            profile.alias_max = rng.between(0, 3)
            profile.uses_aliases = rng.chance(1, 2)
        if swarm.payload_bytes > 1000 and rng.chance(1, 4):
            profile.packet_bytes_max = 1000

    def _filters(self) -> list[bytes]:
        rng = self._rng
        if not self._swarm.has("overlaps"):
            if rng.chance(1, 3):
                return [[b"#", b"t/#", b"+/0/#"][rng.below(3)]]
            filters = [topic for topic in self.topics if rng.chance(1, 2)] or self.topics[:1]
        else:
            pool = [b"#", b"t/#", b"t/0/#", b"t/+/#", b"+/1/#", b"t/+", b"t/+/+", *self.topics]
            filters = [topic_filter for topic_filter in pool if rng.chance(1, 3)] or [b"#"]
        if self._swarm.has("shared") and rng.chance(1, 2):
            shares = [b"$share/g/t/#", b"$share/h/t/0/#", b"$share/g/" + self.topics[0]]
            filters = filters if self._swarm.has("overlaps") else []
            filters.append(shares[rng.below(3)])
        return filters

    def _watcher(self, number: int) -> Profile:
        profile = Profile(f"watch{number}", V5)
        self._limit(profile)
        profile.late = number % 2 == 1
        profile.packet_bytes_max = 0
        profile.expiry_s = NEVER_EXPIRES_S
        return profile

    def _replayer(self, number: int) -> Profile:
        profile = Profile(f"replay{number}", V5)  # only MQTT 5 says which record it is
        self._limit(profile)
        profile.packet_bytes_max = 0
        streams = self._swarm.config.streams
        # One stream each: records of two streams cannot be told apart.
        stream = streams[self._rng.below(len(streams))]
        profile.filters = [b"$stream/" + stream.name.encode() + b"/earliest/#"]
        return profile
