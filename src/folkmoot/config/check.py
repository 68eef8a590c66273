"""Checks across sections, such as those that make a node secure by default. Changes nothing."""

from __future__ import annotations

from pathlib import Path

from folkmoot.config.cluster_check import cluster_problems
from folkmoot.config.secret import exposure
from folkmoot.config.settings import ListenerSettings, RuleSettings, Settings, TlsSettings

__all__ = ["allows_anonymous", "exposed", "problems"]


def allows_anonymous(settings: Settings) -> bool:
    """Whether clients may connect without a password or a certificate."""
    auth = settings.auth
    if auth.allow_anonymous is not None:
        return auth.allow_anonymous
    return auth.password_file is None and not auth.user_from_certificate


def problems(settings: Settings) -> list[str]:
    """Return one sentence per problem, with what to do about it; empty if the settings can be used."""
    found: list[str] = []
    for number, listener in enumerate(settings.listeners):
        where = f"listeners[{number}] ({listener.protocol} {listener.address})"
        found += [f"{where}: {text}" for text in tls_problems(settings, listener)]
        found += [f"{where}: {text}" for text in exposure_problems(settings, listener)]
        if listener.origins and listener.protocol not in ("ws", "wss"):
            found.append(f"{where}: origins is set, but browsers connect only to ws and wss: leave it out")
    found += address_problems(settings)
    found += admin_problems(settings)
    found += auth_problems(settings)
    found += cluster_problems(settings.cluster)
    found += cluster_file_problems(settings)
    if settings.cluster.witness and "listeners" in settings.model_fields_set:
        found.append(
            "cluster.witness: a witness has nothing for clients: leave the listeners out (--mqtt, --ws and so on)"
        )
    return found


def exposed(settings: Settings) -> list[str]:
    """Return what strangers on the network could do, of `problems`; empty if they can do nothing."""
    found = []
    for number, listener in enumerate(settings.listeners):
        where = f"listeners[{number}] ({listener.protocol} {listener.address})"
        found += [f"{where}: {text}" for text in exposure_problems(settings, listener)]
    return found + admin_exposure(settings)


def tls_problems(settings: Settings, listener: ListenerSettings) -> list[str]:
    """Check certificates: missing ones, and files that cannot be read."""
    if listener.protocol in ("mqtt", "ws"):
        return (
            []
            if listener.tls is None
            else [f"tls is set, but {listener.protocol} has no TLS: use {listener.protocol}s"]
        )
    tls = settings.tls_of(listener) or TlsSettings()
    if tls.certificate is None:
        return ["it needs a certificate: set certificate and key in [tls]"]
    found = []
    for name, path in (("certificate", tls.certificate), ("ca", tls.ca), ("crl", tls.crl)):
        found += unreadable(f"tls.{name}", path)
    return found + unusable("tls.key", tls.key)


def exposure_problems(settings: Settings, listener: ListenerSettings) -> list[str]:
    """Check anonymous access: from the network it must be configured explicitly, it is never a default."""
    if listener.address.is_loopback() or settings.auth.allow_anonymous is True or not allows_anonymous(settings):
        return []
    tls = settings.tls_of(listener)
    if tls is not None and tls.require_client_certificate:
        return []
    return [
        "anyone on the network could connect. Set auth.password_file (`folkmoot passwd FILE USER` writes one), or "
        "listen on 127.0.0.1, or set auth.allow_anonymous = true if that is what you want"
    ]


def address_problems(settings: Settings) -> list[str]:
    """Check for addresses that are used twice; port 0 is a different one each time."""
    used: dict[str, str] = {}
    found = []
    places = [(f"listeners[{number}]", entry.address) for number, entry in enumerate(settings.listeners)]
    if settings.admin.address is not None:
        places.append(("admin", settings.admin.address))
    if settings.cluster.listen is not None:
        places.append(("cluster.listen", settings.cluster.listen))
    for place, address in places:
        if address.port == 0:
            continue
        if str(address) in used:
            found.append(f"{place}: {address} is also used by {used[str(address)]}; use another port for one of them")
        used[str(address)] = place
    return found


def admin_problems(settings: Settings) -> list[str]:
    """Check the HTTP server: it shows what clients published, so it needs a token unless it is on loopback."""
    admin = settings.admin
    found = unusable("admin.token_file", admin.token_file)
    found += unusable("admin.metrics_token_file", admin.metrics_token_file)
    if admin.metrics_token_file is not None and admin.token_file is None:
        found.append(
            "admin.metrics_token_file: without admin.token_file, requests need no token at all. Set it, or leave "
            "metrics_token_file out"
        )
    return found + admin_exposure(settings)


def admin_exposure(settings: Settings) -> list[str]:
    """Check that the HTTP server cannot be reached from the network without a token."""
    admin = settings.admin
    if admin.address is None or admin.address.is_loopback() or admin.token_file is not None:
        return []
    return [
        f"admin.address: on {admin.address} anyone on the network could read every stream. Set admin.token_file "
        "(a file with a long random token), or use 127.0.0.1"
    ]


def auth_problems(settings: Settings) -> list[str]:
    """Check for contradictions between settings of authentication."""
    auth = settings.auth
    found = unusable("auth.password_file", auth.password_file)
    if auth.user_from_certificate and not any(
        tls.ca is not None for entry in settings.listeners if (tls := settings.tls_of(entry)) is not None
    ):
        found.append("auth.user_from_certificate: no listener asks for client certificates. Set tls.ca")
    if auth.allow_anonymous is False and auth.password_file is None and not auth.user_from_certificate:
        found.append("auth.allow_anonymous: with false, no client could connect. Set auth.password_file")
    unproved = auth.password_file is None and allows_anonymous(settings)
    if unproved and any("%u" in pattern.replace("%%", "") for pattern in auth.client_ids):
        found.append(
            "auth.client_ids: without auth.password_file a client may use any user name. Set it, or leave %u out"
        )
    if unproved and any(is_about_users(rule) for rule in auth.rules):
        found.append(
            "auth.rules: some depend on user names, and without auth.password_file a client may use any name. Set "
            "it, or leave user and %u out of the rules"
        )
    return found


def cluster_file_problems(settings: Settings) -> list[str]:
    """Check for files of the cluster that cannot be read."""
    cluster = settings.cluster
    found = unusable("cluster.secret_file", cluster.secret_file)
    if cluster.tls is not None:
        found += unreadable("cluster.tls.certificate", cluster.tls.certificate)
        found += unusable("cluster.tls.key", cluster.tls.key)
        found += unreadable("cluster.tls.ca", cluster.tls.ca)
        found += unreadable("cluster.tls.crl", cluster.tls.crl)
    return found


def is_about_users(rule: RuleSettings) -> bool:
    """Return whether an access rule depends on the user name."""
    return rule.user != "*" or any("%u" in text.replace("%%", "") for text in (*rule.topics, rule.group))


def unusable(name: str, path: Path | None) -> list[str]:
    """Return why a secret cannot be read, or that other users can read it, too."""
    found = unreadable(name, path)
    why = "" if path is None or found else exposure(path)
    return [f"{name}: {why}"] if why else found


def unreadable(name: str, path: Path | None) -> list[str]:
    """Return why a file cannot be read, if one is set and cannot be read."""
    if path is None:
        return []
    try:
        with path.open("rb"):
            return []
    except OSError as error:
        return [f"{name}: {path} cannot be read ({error.strerror})"]
    except ValueError as error:  # a zero byte in the path
        return [f"{name}: {str(path)!r} cannot be read ({error})"]
