"""An authority of certificates for a test, with `openssl`: it issues, revokes, and writes its list."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["Authority"]

CONFIG = """
[ca]
default_ca = this
[this]
database = {folder}/index.txt
new_certs_dir = {folder}
serial = {folder}/serial
crlnumber = {folder}/crlnumber
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
default_days = 30
policy = any
unique_subject = no
[any]
commonName = supplied
"""


class Authority:
    """Files in a folder: ca.pem, NAME.pem and NAME.key of those who got a certificate, crl.pem."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "config").write_text(CONFIG.format(folder=folder))
        (folder / "index.txt").write_text("")
        (folder / "serial").write_text("7FFFFFFFFFFFFFFFFE\n")  # the next ones begin with a bit that is no sign
        (folder / "crlnumber").write_text("01\n")
        request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={name}"]
        self._run(*request, "-keyout", "ca.key", "-out", "ca.pem")
        self.write_list()

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return the certificate and the key of a client."""
        request = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
        self._run(*request, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        self._run("ca", "-batch", "-config", "config", "-in", f"{name}.csr", "-out", f"{name}.pem", "-notext")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def revoke(self, name: str) -> None:
        """Revoke a certificate, and write the list."""
        self._run("ca", "-config", "config", "-revoke", f"{name}.pem")
        self.write_list()

    def write_list(self, *times: str) -> None:
        """Write the list; times: when it is valid, else from now on for 30 days."""
        self._run("ca", "-config", "config", "-gencrl", *(times or ("-crldays", "30")), "-out", "crl.pem")
