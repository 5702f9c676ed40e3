"""A fault of encryption: the source's certificate expires, and is rotated while clients run."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify_lab.bank import app_session
from migverify_lab.cache import make_directory
from migverify_lab.chaos import Settings
from migverify_lab.chaos_world import CaseWorkspace, case_fault, rows_of
from migverify_lab.load import error_of
from migverify_lab.session import connect
from migverify_lab.workspace import Proof


def prepare_certificates(world: CaseWorkspace) -> str:
    """Give the source a certificate of an authority of the lab; returns the authority's file for clients."""
    folder = make_directory(world.folder / "tls")
    _authority(folder)
    _issue(world, timedelta(days=2))
    return str(folder / "ca.pem")


def _authority(folder: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "migverify lab")])
    now = datetime.now(UTC)
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + timedelta(days=10)).add_extension(x509.BasicConstraints(True, None), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, hashes.SHA256()))  # fmt: skip
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "ca.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                      serialization.NoEncryption()))  # fmt: skip


def _issue(world: CaseWorkspace, lasts: timedelta) -> None:
    """Write a new certificate of the source, and have the server read it; sessions that are open go on."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder = world.folder / "tls"
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise LabError(f"{folder / 'ca.key'} is no key of this lab", hint="Remove the folder.")
    key = ec.generate_private_key(ec.SECP256R1())
    until = datetime.now(UTC) + lasts
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "source")])
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(authority.subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(until - timedelta(days=5))
            .not_valid_after(until)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False)
            .sign(signer, hashes.SHA256()))  # fmt: skip
    (folder / "server.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                          serialization.NoEncryption()))  # fmt: skip
    with connect(world.server("source"), seconds=20.0) as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL ssl_ca = %s, GLOBAL ssl_cert = %s, GLOBAL ssl_key = %s",
                       tuple(str(folder / part) for part in ("ca.pem", "server.pem", "server.key")))  # fmt: skip
        cursor.execute("ALTER INSTANCE RELOAD TLS")


def _expire(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    """Give the source a certificate that ends in a moment: RELOAD TLS refuses one that has ended (3888)."""
    lasts = float(settings["lasts"])
    _issue(world, timedelta(seconds=lasts))
    time.sleep(lasts)
    return {"lasts": lasts}


def _handshake(world: CaseWorkspace) -> str:
    """Return the error of a client that checks the certificate; empty: it is let in."""
    try:
        with app_session(world.server("source"), ca=str(world.folder / "tls" / "ca.pem")):
            return ""
    except LabError as error:
        return error_of(error)[1]


def _valid_until(world: CaseWorkspace) -> datetime:
    text = str(rows_of(world, "source", "SHOW STATUS LIKE 'Ssl_server_not_after'")[0][1])
    return datetime.strptime(text, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)


def _is_expired(world: CaseWorkspace, _settings: Settings, since: float) -> Proof:
    """The server itself says until when, a client that checks is refused for that reason, and so was the load."""
    until, said = _valid_until(world), _handshake(world)
    failed = [one for one in world.failures_since(since) if "certificate has expired" in one.text]
    text = f"valid until {until:%Y-%m-%d %H:%M:%S}; a client that checks gets {said[:90]!r}; {len(failed)} refused"
    good = until < datetime.now(UTC) and "certificate has expired" in said and bool(failed)
    return Proof(good, text, {"refused": len(failed)})


_ROTATED = 1.0
"""Seconds from the first new certificate to the second one: this one is rotated while it is good."""


def _rotate(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    for number in range(2):
        _issue(world, timedelta(days=2 + number))
        time.sleep(_ROTATED)
    return {"rotated": 2}


def _is_valid(world: CaseWorkspace, _settings: Settings, since: float) -> Proof:
    """The server says so, a client that checks is let in, and the rotation of a good certificate hurt nobody."""
    until, said = _valid_until(world), _handshake(world)
    hurt = [one for one in world.attempts() if one.end != "A" and one.since > since + 0.8 * _ROTATED and one.until]
    text = f"valid until {until:%Y-%m-%d %H:%M:%S}; a client that checks is {said[:90] or 'let in'}"
    good = until > datetime.now(UTC) + timedelta(days=1) and not said and not hurt
    return Proof(good, f"{text}; {len(hurt)} attempts failed while a good certificate was rotated")


FAULTS = (
    case_fault("certificate-expired", "The source's certificate has expired.", _expire, _is_expired, _rotate, _is_valid,
          {"lasts": "3"}),
)  # fmt: skip
