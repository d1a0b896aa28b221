"""Certificates for tests, made by the command `openssl`: authorities, and what they sign."""

import os
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

HOSTS = ("DNS:localhost", "IP:127.0.0.1")
# Times of a certificate's validity, as `openssl ca` takes them.
START, END = "20200101000000Z", "20990101000000Z"
# End of a certificate that is no longer valid.
EXPIRED = "20200102000000Z"

CONFIGURATION = """
[ca]
default_ca = authority
[authority]
database = {directory}/index
new_certs_dir = {directory}
certificate = {directory}/ca.crt
private_key = {directory}/ca.key
default_md = sha256
rand_serial = yes
unique_subject = no
policy = subject
[subject]
commonName = supplied
"""


class MissingOpenssl(RuntimeError):
    """The command is not there."""


@dataclass
class Pair:
    """A certificate with its private key."""

    certificate: Path
    key: Path

    def install(self, directory: Path) -> "Pair":
        """Puts both into a directory under the names that a proxy reads, each in one step."""
        placed = Pair(directory / "tls.crt", directory / "tls.key")
        for source, target in ((self.key, placed.key), (self.certificate, placed.certificate)):
            place(source.read_bytes(), target)
        return placed

    def store(self, target: Path, password: str) -> Path:
        """Both in a file of PKCS#12, as Java takes them."""
        _openssl("pkcs12", "-export", "-in", self.certificate, "-inkey", self.key, "-out", target, "-passout", f"pass:{password}")
        return target

    @property
    def der(self) -> bytes:
        """The certificate as a peer's socket shows it."""
        return ssl.PEM_cert_to_DER_cert(self.certificate.read_text())


def place(content: bytes, target: Path) -> None:
    """Replaces a file, so that a reader sees the former content or the new one."""
    beside = target.with_suffix(".new")
    beside.write_bytes(content)
    beside.chmod(0o600)
    os.replace(beside, target)


class Authority:
    """An authority with files in a directory of its own."""

    def __init__(self, directory: Path, name: str = "authority"):
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self.ca, self.number = self.directory / "ca.crt", 0
        (self.directory / "index").write_text("")
        (self.directory / "openssl.cnf").write_text(CONFIGURATION.format(directory=self.directory))
        _openssl("req", "-x509", *_new_key(self.directory / "ca.key"), "-days", "3650", "-subj", f"/CN={name}", "-out", self.ca,
                 "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def truststore(self, target: Path, password: str) -> Path:
        """The authority in a file of PKCS#12, as Java takes those that it trusts."""
        subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "authority", "-file", self.ca, "-keystore", target,
                        "-storetype", "PKCS12", "-storepass", password], check=True, capture_output=True)
        return target

    def server(self, name: str = "shunt", hosts=HOSTS, end: str = END) -> Pair:
        return self._issue(name, f"subjectAltName = {','.join(hosts)}\nextendedKeyUsage = serverAuth\n", end)

    def client(self, name: str = "application", end: str = END) -> Pair:
        return self._issue(name, f"subjectAltName = URI:spiffe://test/{name}\nextendedKeyUsage = clientAuth\n", end)

    def member(self, name: str = "member", hosts=HOSTS) -> Pair:
        """The certificate of a proxy of a fleet, as a server and as a client of other proxies. A node of a Redis Cluster has one too."""
        return self._issue(name, f"subjectAltName = {','.join(hosts)}\nextendedKeyUsage = serverAuth, clientAuth\n", END)

    def nameless(self) -> Pair:
        """A server's certificate that clients accept for no host."""
        return self._issue("nameless", "extendedKeyUsage = serverAuth\n", END)

    def _issue(self, name: str, extensions: str, end: str) -> Pair:
        self.number += 1
        stem = self.directory / f"{self.number}-{name}"
        pair, request, wanted = Pair(Path(f"{stem}.crt"), Path(f"{stem}.key")), Path(f"{stem}.csr"), Path(f"{stem}.cnf")
        wanted.write_text(f"basicConstraints = CA:FALSE\nkeyUsage = digitalSignature\n{extensions}")
        _openssl("req", *_new_key(pair.key), "-subj", f"/CN={name}", "-out", request)
        _openssl("ca", "-batch", "-notext", "-config", self.directory / "openssl.cnf", "-startdate", START, "-enddate", end,
                 "-extfile", wanted, "-in", request, "-out", pair.certificate)
        return pair


def client_context(ca: Path = None, pair: Pair = None, version: ssl.TLSVersion = None) -> ssl.SSLContext:
    """The context of a client in Python. It verifies the server by `ca`, or not at all, and shows `pair`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_verify_locations(ca)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def _new_key(path: Path) -> list:
    return ["-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]


def _openssl(*arguments) -> None:
    try:
        done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    except FileNotFoundError as error:
        raise MissingOpenssl("tests of TLS need the command openssl: apt-get install openssl") from error
    if done.returncode != 0:
        raise RuntimeError(f"openssl {' '.join(map(str, arguments))}: {done.stderr}")
