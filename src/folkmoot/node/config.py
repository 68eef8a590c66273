"""The settings of a node at its start: plain values, made by the configuration package or by a test."""

from __future__ import annotations

from folkmoot.auth.access import Access
from folkmoot.auth.policy import Policy
from folkmoot.kernel.limits import Limits
from folkmoot.peer.config import ClusterConfig
from folkmoot.streams.config import StreamConfig

__all__ = ["NodeConfig"]


class NodeConfig:
    """Settings of one node that its core needs.

    Everything else (addresses, certificates, files) belongs to a driver.
    """

    def __init__(self) -> None:
        self.node_id: str = "node1"
        self.partitions: int = 256
        self.limits: Limits = Limits()
        self.streams: list[StreamConfig] = []
        self.policy: Policy = Policy([], True)
        self.allow_anonymous: bool = True
        self.check_passwords: bool = False  # ask the driver about user names and passwords
        self.user_from_certificate: bool = False  # the certificate's common name replaces user name and password
        self.client_id_owner: bool = True  # where there are users, a client id belongs to the user of its session
        self.client_ids: list[str] = []  # patterns of the client ids that a user may have; empty: any
        self.users: dict[str, str] | None = None  # the stored hash of each user; None: not known, nobody is missing
        self.response_information: str = ""  # given to clients that ask for it; %c is the client id
        self.server_reference: str = ""  # the server that clients may use when this node is busy or stops
        self.version: str = "0"  # of the software, for $SYS/broker/version
        self.cluster: ClusterConfig | None = None  # None: a node alone

    def access(self) -> Access:
        """Return the part that a reload replaces."""
        access = Access(self.policy)
        access.allow_anonymous = self.allow_anonymous
        access.check_passwords = self.check_passwords
        access.user_from_certificate = self.user_from_certificate
        access.client_id_owner = self.client_id_owner
        access.client_ids = self.client_ids
        access.users = self.users
        return access
