"""SIGHUP: reads rules, users, certificates, tokens and secrets again, and judges by them what is open.

First everything is read, in a thread, because a large password file takes a while. Only if nothing is wrong it is put
into force, all of it: a bad file changes nothing. Other settings are fixed at the start of the process; the log names
those that have changed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from folkmoot.config.check import allows_anonymous, exposed
from folkmoot.config.convert import access_of, secrets_of
from folkmoot.config.fault import ConfigError
from folkmoot.config.password import PasswordFile
from folkmoot.config.secret import check_private
from folkmoot.config.settings import ListenerSettings, Settings, TlsSettings
from folkmoot.kernel.errors import FolkmootError
from folkmoot.runtime.audit import Reading, SettingFiles
from folkmoot.runtime.listener import Listener
from folkmoot.runtime.password import PasswordChecks, mark_keys
from folkmoot.runtime.peers import client_context
from folkmoot.runtime.tls import certificates_of

if TYPE_CHECKING:
    from folkmoot.runtime.serve import Service, ServingNode

__all__ = ["Reload", "read_users"]

JUDGED_PER_TURN: Final = 200  # certificates; each takes about 50 us

# Sections and fields that are read again; `cluster.seeds` by discovery.
READ_AGAIN: Final = (
    *("auth", "tls", "listeners", "admin.token_file", "admin.metrics_token_file"),
    *("cluster.secret_file", "cluster.tls"),
)
SEEDS: Final = "cluster.seeds"


def read_users(settings: Settings) -> PasswordFile | None:
    """Return the users of the password file, None without one; raises FolkmootError."""
    path = settings.auth.password_file
    if path is None:
        return None
    check_private(path)
    return PasswordFile.read(path)


def hashes_of(file: PasswordFile | None) -> dict[str, str]:
    """Return the stored hash of each user; none without a file."""
    return {} if file is None else file.hashes


class Prepared:
    """What was read, and is not in force yet."""

    def __init__(self, settings: Settings, file: PasswordFile | None, reading: Reading) -> None:
        self.settings = settings
        self.file = file
        self.reading = reading
        self.secrets: list[bytes] = []
        self.keys: list[bytes] = []
        self.bound: list[ListenerSettings] = []  # of the open listeners, with their addresses
        self.listeners: list[tuple[Listener, TlsSettings, ssl.SSLContext]] = []
        self.peers: tuple[TlsSettings, ssl.SSLContext, ssl.SSLContext] | None = None
        self.service: Callable[[], None] | None = None


class Reload:
    """What one node reads again."""

    def __init__(
        self,
        serving: ServingNode,
        listeners: list[Listener],
        service: Service | None,
        reread: Callable[[], Settings] | None,
        file: PasswordFile | None,
    ) -> None:
        self._serving = serving
        self._listeners = listeners
        self._service = service
        self._reread = reread
        self._passwords: PasswordChecks | None = None
        self._files = SettingFiles(serving.settings, hashes_of(file))
        self._secrets = secrets_of(serving.settings.cluster)
        self._keys = mark_keys(serving.settings.cluster.name, self._secrets)
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def check_passwords(self, file: PasswordFile | None) -> None:
        """Begin to check passwords, or go on with another file; None: they are not checked."""
        turns = self._serving.turns
        if file is None:
            return
        if self._passwords is None:
            node = turns.node
            self._passwords = PasswordChecks(file, turns.loop, turns, node.config.limits, node.remembered, self._keys)
            turns.check = self._passwords.check
        else:
            self._passwords.replace(file, self._keys)

    def begin(self) -> None:
        """Read everything again; a second signal meanwhile has it read once more."""
        if self._task is not None:
            self._again = True
            return
        self._task = self._serving.turns.loop.create_task(self._run())
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._report(task)
        if self._again and not task.cancelled():
            self._again = False
            self.begin()

    def _report(self, task: asyncio.Task[None]) -> None:
        """Tell an unexpected error, after which the node goes on: its own faults end it before they come here."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._serving.complain("a reload", error)
            text = " ".join(repr(error).split())
            self._serving.say("error", "reload_failed", reason=f"{text}; only a part is in force: reload or restart")
            self._serving.record("reload_failed", why=text)

    async def _run(self) -> None:
        serving = self._serving
        if serving.audit is not None:
            serving.audit.reopen()
        try:
            prepared = await serving.turns.loop.run_in_executor(None, self._prepare)
        except Exception as error:  # noqa: BLE001 - whatever a file has caused, nothing has changed
            text = " ".join((str(error) if isinstance(error, FolkmootError) else repr(error)).split())
            serving.say("error", "reload_failed", reason=f"{text}; nothing has changed")
            serving.record("reload_failed", why=text)
            return
        await self._put_into_force(prepared)
        if serving.turns.halted:
            return
        fixed = fixed_changes(serving.settings, prepared.settings)
        if fixed:
            why = "these settings have changed and need a restart: " + ", ".join(fixed)
            serving.say("warning", "restart_needed", reason=why)
        serving.say("info", "reloaded")
        serving.record("reloaded", **self._files.replace(prepared.reading))

    def _prepare(self) -> Prepared:
        """Read everything; raises FolkmootError. In a thread: it changes nothing."""
        serving = self._serving
        settings = serving.settings if self._reread is None else self._reread()
        file = read_users(settings)
        prepared = Prepared(settings, file, self._files.read(settings, hashes_of(file)))
        prepared.secrets = secrets_of(settings.cluster)
        if bool(prepared.secrets) != bool(self._secrets):
            fault = "cluster.secret_file: a secret is neither introduced nor given up while a node runs: restart it"
            raise ConfigError("the configuration", [fault])
        prepared.keys = self._keys
        if prepared.secrets != self._secrets:
            prepared.keys = mark_keys(serving.settings.cluster.name, prepared.secrets)
        prepared.bound = bound(serving.settings, settings, self._listeners)
        for listener, entry in zip(self._listeners, prepared.bound, strict=True):
            if listener.certificates is not None and entry.tls is not None:
                prepared.listeners.append((listener, entry.tls, listener.certificates.prepare(entry.tls)))
        admin = settings.admin.model_copy(update={"address": serving.settings.admin.address})
        open_now = settings.model_copy(update={"listeners": prepared.bound, "admin": admin})
        if found := exposed(open_now):
            raise ConfigError("the configuration, with the addresses that are open until a restart,", found)
        if serving.peers is not None and serving.peers.certificates is not None:
            certificates = serving.peers.certificates
            peer_tls = settings.cluster.tls
            tls = certificates.settings if peer_tls is None else peer_tls.for_listener()
            prepared.peers = tls, certificates.prepare(tls), client_context(tls)
        if self._service is not None:
            prepared.service = self._service.read_again(settings)
        return prepared

    async def _put_into_force(self, prepared: Prepared) -> None:
        serving = self._serving
        turns = serving.turns
        users = None if prepared.file is None else prepared.file.hashes
        # Both in one step of the loop: a password that was checked is judged by the same file.
        replaced = prepared.secrets != self._secrets
        self._secrets, self._keys = prepared.secrets, prepared.keys
        self.check_passwords(prepared.file)
        turns.ask(turns.node.reload, access_of(prepared.settings, users))
        if replaced:
            turns.ask(turns.node.replace_secrets, self._secrets)
        if prepared.service is not None:
            prepared.service()
        protected = not allows_anonymous(prepared.settings)
        for listener, entry in zip(self._listeners, prepared.bound, strict=True):
            listener.allow_pages(entry.origins, protected)
        stricter = False
        for listener, tls, context in prepared.listeners:
            stricter = listener.replace(tls, context) or stricter
        if prepared.peers is not None and serving.peers is not None:
            stricter = serving.peers.replace(*prepared.peers) or stricter
        if stricter:
            await self._judge_certificates()

    async def _judge_certificates(self) -> None:
        """Have the node end the connections whose certificates are not accepted any more.

        One that cannot be judged ends, too: nothing proves that it would be accepted. Handshakes that are not over are
        judged when they are (`outdated`).
        """
        turns = self._serving.turns
        if self._serving.peers is not None and self._serving.peers.certificates is not None:
            self._serving.peers.judge()
        for count, connection in enumerate(turns.node.connections(), 1):
            if count % JUDGED_PER_TURN == 0:
                await asyncio.sleep(0)
            if turns.halted:
                return
            if connection.info.transport not in ("tls", "wss") or connection.id not in turns.open:
                continue
            try:
                why = refusal(connection.handle)
            except Exception as error:  # noqa: BLE001 - whatever it is, others are judged
                turns.broken(connection, error)
                continue
            if why:
                turns.ask(turns.node.revoke, connection, why)

    def close(self) -> None:
        """End the threads of the password checks."""
        if self._task is not None:
            self._task.cancel()
        if self._passwords is not None:
            self._passwords.close()


def refusal(handle: Any) -> str:
    """Return why the certificate of an open connection is not accepted any more, "" if it is.

    handle: of a connection with TLS, a transport or the protocol of a WebSocket.
    """
    transport = getattr(handle, "_transport", handle)
    secured = transport.get_extra_info("ssl_object")
    certificates = certificates_of(secured)
    return "" if certificates is None else certificates.refuses(secured)


def bound(first: Settings, now: Settings, listeners: list[Listener]) -> list[ListenerSettings]:
    """Return the settings of the open listeners as they are now; one that has changed goes on as it is.

    `tls` is set where there is TLS.
    """
    found: list[ListenerSettings] = []
    for number, (entry, listener) in enumerate(zip(first.listeners, listeners, strict=True)):
        other = now.listeners[number] if number < len(now.listeners) else None
        if other is not None and identity_of(other) == identity_of(entry):
            found.append(other.model_copy(update={"tls": now.tls_of(other)}))
        else:
            tls = None if listener.certificates is None else listener.certificates.settings
            found.append(listener.settings.model_copy(update={"tls": tls}))
    return found


def identity_of(listener: ListenerSettings) -> tuple[str, str, str]:
    """Return what does not change while a listener is open."""
    return listener.protocol, str(listener.address), listener.path


def fixed_changes(first: Settings, now: Settings) -> list[str]:
    """Return the paths of settings that differ from those of the start and are not read again."""
    found: list[str] = []
    for section in type(first).model_fields:
        if section in READ_AGAIN:
            continue
        mine, theirs = getattr(first, section), getattr(now, section)
        fields = getattr(type(mine), "model_fields", None)
        if fields is None:
            found += [section] if mine != theirs else []
            continue
        for name in fields:
            path = f"{section}.{name}"
            if (
                path not in READ_AGAIN
                and path not in (SEEDS, "node.id")
                and getattr(mine, name) != getattr(theirs, name)
            ):
                found.append(path)
    if [identity_of(one) for one in first.listeners] != [identity_of(one) for one in now.listeners]:
        found.append("listeners")
    return found
