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
        return self


class PeerTlsSettings(Section):
    """Certificates between nodes, which both sides check."""

    certificate: Path = Field(
        description="PEM file with this node's certificate and its chain, valid for server and client use."
    )
    key: Path = Field(description="PEM file with the private key of the certificate, unencrypted.")
    ca: Path = Field(description="PEM file with the CAs that sign the certificates of all nodes, and no others.")

    def for_listener(self) -> TlsSettings:
        """Return the same certificates for a listener that refuses peers without one."""
        return TlsSettings(certificate=self.certificate, key=self.key, ca=self.ca, require_client_certificate=True)
