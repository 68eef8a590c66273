"""Sections that name certificates: those of listeners for clients, and those by which nodes prove who they are."""

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
    ca: Path | None = Field(None, description="PEM file with the authorities that sign client certificates.")
    require_client_certificate: bool = Field(
        False, description="Whether a client without a certificate signed by `ca` is refused in the TLS handshake."
    )

    @model_validator(mode="after")
    def complete(self) -> Self:
        """A certificate needs its key, and client certificates need somebody who signs them."""
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise ValueError(f"certificate and key belong together: set {missing} too")
        if self.require_client_certificate and self.ca is None:
            raise ValueError("require_client_certificate needs ca, the authorities that sign client certificates")
        return self


class PeerTlsSettings(Section):
    """Certificates between nodes, checked by both sides."""

    certificate: Path = Field(
        description="PEM file with this node's certificate and its chain, good for server and client use."
    )
    key: Path = Field(description="PEM file with the private key of the certificate, unencrypted.")
    ca: Path = Field(
        description="PEM file with the authorities that sign the certificates of all nodes, and no others."
    )

    def for_listener(self) -> TlsSettings:
        """The same as certificates of a listener that refuses whoever has none."""
        return TlsSettings(certificate=self.certificate, key=self.key, ca=self.ca, require_client_certificate=True)
