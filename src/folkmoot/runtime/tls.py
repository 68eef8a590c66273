"""TLS contexts of listeners: protocol versions, client certificates, and reloading of certificates.

Owns one `ssl.SSLContext` per listener. It never accepts less than Python's defaults and TLS 1.2 require.
"""

from __future__ import annotations

import os
import ssl
from typing import Any

from folkmoot.config.secret import exposure
from folkmoot.config.settings import TlsSettings
from folkmoot.kernel.errors import FolkmootError

__all__ = ["Certificates", "TlsError", "common_name", "fill", "reason_of", "tls_options"]


class TlsError(FolkmootError):
    """A certificate, key or CA file cannot be used."""


class Certificates:
    """The context of one listener; `reload` reads the files again for new connections."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        settings = self.settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # No tickets: a resumed session presents no client certificate, and each ticket costs a write.
        context.num_tickets = 0
        # A client could have the node do the costly half of a handshake again and again.
        context.options |= ssl.OP_NO_RENEGOTIATION
        fill(context, settings)
        if settings.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED if settings.require_client_certificate else ssl.CERT_OPTIONAL
        return context

    def reload(self) -> None:
        """Read certificate, key and CA file again; on TlsError the current ones stay in use.

        The files are tried in a fresh context first. OpenSSL can only add CAs to a context that is in use: a CA that
        was removed from the file stays trusted until the next start.
        """
        self._load()
        fill(self.context, self.settings)


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


def _no_password() -> str:
    """Return an empty password: an encrypted key then fails at once instead of prompting on the terminal."""
    return ""


def _reason(error: OSError) -> str:
    text = getattr(error, "reason", None) or error.strerror or str(error)
    return str(text).lower().replace("_", " ")


def common_name(certificate: Any) -> str | None:
    """Return the common name in the subject of a client certificate as `SSLSocket.getpeercert` gives it, or None."""
    if not certificate:
        return None
    for relative_name in certificate.get("subject", ()):
        for key, value in relative_name:
            if key == "commonName":
                return str(value)
    return None


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
