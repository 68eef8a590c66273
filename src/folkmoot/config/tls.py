"""Sections with certificates: of listeners for clients, and of nodes among each other."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from folkmoot.config.base import Section

__all__ = ["PeerTlsSettings", "TlsSettings"]


class TlsSettings(Section):
    """Certificates of the listeners mqtts and wss."""

    certificate: Path | None = Field(None, description="PEM file with the server's certificate and its chain.")
    key: Path | None = Field(None, description="PEM file with the private key of the certificate, unencrypted.")
    ca: Path | None = Field(None, description="PEM file with the CAs that sign client certificates.")
    crl: Path | None = Field(
        None,
        description=(
            "PEM file with the revocation lists of all CAs in the chains of client certificates. A client is refused "
            "when one of its certificates is revoked, and when a list is missing or has expired."
        ),
    )
    require_client_certificate: bool = Field(
        False, description="Whether the TLS handshake refuses a client without a certificate signed by `ca`."
    )

    @model_validator(mode="after")
    def complete(self) -> Self:
        """Check that a certificate has its key, and that client certificates have a CA."""
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise ValueError(f"certificate and key belong together: also set {missing}")
        if self.require_client_certificate and self.ca is None:
            raise ValueError("require_client_certificate needs ca, the CAs that sign client certificates")
        if self.crl is not None and self.ca is None:
            raise ValueError("crl needs ca, the CAs whose lists it has")
        return self


class PeerTlsSettings(Section):
    """Certificates between nodes, which both sides check."""

    certificate: Path = Field(
        description="PEM file with this node's certificate and its chain, valid for server and client use."
    )
    key: Path = Field(description="PEM file with the private key of the certificate, unencrypted.")
    ca: Path = Field(description="PEM file with the CAs that sign the certificates of all nodes, and no others.")
    crl: Path | None = Field(
        None, description="PEM file with the revocation lists of all these CAs, as `tls.crl`; checked on both sides."
    )

    def for_listener(self) -> TlsSettings:
        """Return the same certificates for a listener that refuses peers without one."""
        return TlsSettings(
            certificate=self.certificate, key=self.key, ca=self.ca, crl=self.crl, require_client_certificate=True
        )
