"""TLS contexts of listeners: protocol versions, client certificates, and reloading of certificates.

Owns one `ssl.SSLContext` per listener. It never accepts less than Python's defaults and TLS 1.2 require.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from folkmoot.config.secret import exposure
from folkmoot.config.settings import TlsSettings
from folkmoot.kernel.errors import FolkmootError
from folkmoot.mqtt.text import check_utf8
from folkmoot.runtime.revocation import Revocations

__all__ = ["Certificates", "TlsError", "certificates_of", "common_name", "fill", "outdated", "reason_of", "tls_options"]


class TlsError(FolkmootError):
    """A certificate, key or CA file cannot be used."""


class Certificates:
    """The context of one listener.

    `prepare` reads the files again into another context, which `replace` puts in its place: OpenSSL can only add
    authorities to one that is in use.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.context = self._load(settings)
        self.trusted = authorities(self.context)
        self.revoked = _REVOKED.get(self.context)

    def _load(self, settings: TlsSettings) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # No tickets: a resumed session presents no client certificate, and each ticket costs a write.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        # A client could have the node do the costly half of a handshake again and again.
        context.options |= ssl.OP_NO_RENEGOTIATION
        fill(context, settings)
        if settings.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED if settings.require_client_certificate else ssl.CERT_OPTIONAL
        _OWNERS[context] = self
        return context

    def prepare(self, settings: TlsSettings) -> ssl.SSLContext:
        """Read the files into another context; raises TlsError."""
        return self._load(settings)

    def replace(self, settings: TlsSettings, context: ssl.SSLContext) -> bool:
        """Use another context; return whether a client that was accepted by the former one may not be any more."""
        trusted = authorities(context)
        stricter = settings.require_client_certificate and not self.settings.require_client_certificate
        removed = not self.trusted <= trusted
        revoked = _REVOKED.get(context)
        revokes = revoked is not None and (self.revoked is None or revoked.adds_to(self.revoked))
        self.settings, self.context, self.trusted, self.revoked = settings, context, trusted, revoked
        return removed or stricter or revokes

    def refuses(self, connection: Any) -> str:
        """Return why the certificate of an open connection would not be accepted any more, "" if it would.

        connection: an `ssl.SSLObject`. Its chain was verified up to an authority, which must still be trusted. One
        that was replaced by another certificate of the same authority counts as another: the client comes again.
        """
        if connection.getpeercert(True) is None:
            return "a client certificate is needed now" if self.settings.require_client_certificate else ""
        chain = verified_chain(connection)
        if not any(certificate in self.trusted for certificate in chain):
            return "the authority of the client certificate is not trusted any more"
        return "" if self.revoked is None else self.revoked.refuses(chain)


_REVOKED: WeakKeyDictionary[ssl.SSLContext, Revocations] = WeakKeyDictionary()
_OWNERS: WeakKeyDictionary[ssl.SSLContext, Certificates] = WeakKeyDictionary()


def certificates_of(connection: Any) -> Certificates | None:
    """Return the certificates by which an open connection was accepted, replaced ones included."""
    context = getattr(connection, "context", None)
    return None if context is None else _OWNERS.get(context)


def outdated(connection: Any) -> str:
    """Return why a connection whose handshake has just ended is not accepted, "" if it is.

    Only that of a handshake which began before the certificates were read again may not be.
    """
    certificates = certificates_of(connection)
    if certificates is None or certificates.context is connection.context:
        return ""
    return certificates.refuses(connection)


def authorities(context: ssl.SSLContext) -> frozenset[bytes]:
    """Return the certificates (DER) of the authorities of a context."""
    return frozenset(context.get_ca_certs(binary_form=True))


def verified_chain(connection: Any) -> list[bytes]:
    """Return the chain (DER) by which the certificate of a peer was verified, its own first."""
    public = getattr(connection, "get_verified_chain", None)
    if public is not None:  # Python 3.13
        return list(public())
    chain = connection._sslobj.get_verified_chain()  # noqa: SLF001 - from Python 3.10 to 3.12 it is only there
    return [certificate.public_bytes(ssl._ssl.ENCODING_DER) for certificate in chain or []]  # type: ignore[attr-defined]  # noqa: SLF001


def fill(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Load the files named in the settings into a context; TlsError names the file that cannot be used."""
    if settings.certificate is None or settings.key is None:
        raise TlsError(
            "a TLS listener needs a certificate: set certificate and key in [tls], or --tls-certificate, --tls-key"
        )
    if why := exposure(settings.key):
        raise TlsError(why)
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=_no_password)
    except OSError as error:  # ssl.SSLError is one
        raise TlsError(
            f"cannot use the certificate {settings.certificate} with the key {settings.key}: {_reason(error)}; "
            "both must be PEM files that belong together, the key unencrypted"
        ) from error
    if settings.ca is None:
        return
    try:
        context.load_verify_locations(settings.ca)
    except OSError as error:
        raise TlsError(
            f"cannot use the authorities in {settings.ca}: {_reason(error)}; it must be a PEM file of certificates"
        ) from error
    if settings.crl is not None:
        _fill_revoked(context, settings.crl)


def _fill_revoked(context: ssl.SSLContext, path: Path) -> None:
    """Load revocation lists into a context: each certificate of a chain is checked by a list of its authority."""
    known = context.cert_store_stats()["x509"]
    try:
        revoked = Revocations.read(path)
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        why = _reason(error) if isinstance(error, OSError) else error
        raise TlsError(f"cannot use the revocation lists in {path}: {why}; it must be a PEM file of them") from error
    if context.cert_store_stats()["x509"] != known:
        raise TlsError(f"{path} must hold revocation lists only: the certificates in it would be trusted")
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    _REVOKED[context] = revoked


def _no_password() -> str:
    """Return an empty password: an encrypted key then fails at once instead of prompting on the terminal."""
    return ""


def _reason(error: OSError) -> str:
    text = getattr(error, "reason", None) or error.strerror or str(error)
    return str(text).lower().replace("_", " ")


def common_name(certificate: Any) -> str | None:
    """Return the common name in the subject of a client certificate as `SSLSocket.getpeercert` gives it, or None.

    None also for what is no user name: an empty one, several, and text that MQTT does not allow in one.
    """
    if not certificate:
        return None
    found = [
        str(value)
        for relative_name in certificate.get("subject", ())
        for key, value in relative_name
        if key == "commonName"
    ]
    if len(found) != 1 or not found[0] or not check_utf8(found[0].encode("utf-8", "surrogatepass")):
        return None
    return found[0]


def tls_options(certificates: Certificates | None, handshake_s: float, shutdown_s: float) -> dict[str, Any]:
    """Return the options of an accepted connection; none without TLS. Certificates may have been read again since."""
    if certificates is None:
        return {}
    return {
        "ssl": certificates.context,
        "ssl_handshake_timeout": handshake_s,
        "ssl_shutdown_timeout": shutdown_s,
    }


def reason_of(error: Exception) -> str:
    """Return why a connection failed, as the system or the TLS library describes it."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0).lower()
    return str(error)
