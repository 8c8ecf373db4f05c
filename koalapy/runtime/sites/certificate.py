"""The key and certificate of a site: made, read, renewed and rotated. A pin names a key.

A certificate is self-signed, since two people exchange their pins themselves. A pin is the SHA-256 of the public key
(SubjectPublicKeyInfo, as in RFC 7469). Thereby a certificate is renewed under its key, and no neighbour has to know.
"""

import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from koalapy.model.errors import OurError, RequestError

_LIFE = timedelta(days=365)
_RENEW = timedelta(days=30)  # before the end
_SKEW = timedelta(hours=1)  # between the clocks of two sites
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Identity:
    """A site's private key, and a certificate for it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pin(self) -> str:
        return pin_of(self.certificate)


def pin_of(certificate: x509.Certificate) -> str:
    """Return the pin of a certificate's key: `sha256:` and 64 hexadecimal digits."""
    public = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{sha256(public).hexdigest()}"


def objection(certificate: x509.Certificate, now: datetime) -> str | None:
    """Return what is wrong with the dates of a certificate; None if it is valid at `now`."""
    if now > certificate.not_valid_after_utc + _SKEW:
        return f"it expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
    if now < certificate.not_valid_before_utc - _SKEW:
        return f"it is valid from {certificate.not_valid_before_utc:%Y-%m-%d} on only"
    return None


def make_identity(site: str) -> Identity:
    """Return a new key (EC, P-256) with a certificate of one year."""
    return certified(site, ec.generate_private_key(ec.SECP256R1()))


def certified(site: str, key: ec.EllipticCurvePrivateKey, now: datetime | None = None) -> Identity:
    """Return the key with a certificate of one year from `now` on."""
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, site)]), now or datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    return Identity(key, built.sign(key, SHA256()))


def write_identity(path: Path, identity: Identity, replace: bool = False) -> None:
    """Write key and certificate into one file of mode 0600, whole or not at all.

    Raises RequestError if the file exists and `replace` is not given, and OurError if it cannot be written.
    """
    new = path.with_name(f"{path.name}.new")
    pem = identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem += identity.certificate.public_bytes(Encoding.PEM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.unlink(missing_ok=True)
        with open(new, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            new.replace(path)
        else:
            os.link(new, path)
            new.unlink()
    except FileExistsError as error:
        new.unlink(missing_ok=True)
        advice = "It is this site's identity, which the neighbours know. `koala sites rotate` replaces it."
        raise RequestError("certificate_exists", f"{path} exists already.", advice) from error
    except OSError as error:
        raise OurError("not_written", f"{path} cannot be written: {error.strerror}.", "Make room there.") from error


def read_identity(path: Path) -> Identity:
    """Read key and certificate. A certificate that ends within a month is renewed under its key.

    Raises RequestError if there is none, if it cannot be used, or if others may read it.
    """
    try:
        mode, pem = path.stat().st_mode, path.read_bytes()
    except FileNotFoundError as error:
        message = f"This site has no key yet: there is no {path}."
        raise RequestError("no_certificate", message, "`koala sites init` makes one.") from error
    except OSError as error:
        raise RequestError("bad_certificate", f"{path} cannot be read: {error.strerror}.", "") from error
    if stat.S_IMODE(mode) & _OTHERS:
        message = f"{path} has this site's key in it, and others than you may read it."
        raise RequestError("key_readable", message, f"`chmod 600 {path}`, then `koala sites rotate`.")
    try:
        key, certificate = load_pem_private_key(pem, None), x509.load_pem_x509_certificate(pem)
    except (ValueError, TypeError) as error:
        advice = "Restore it from a backup, or move it away and run `koala sites init`."
        raise RequestError("bad_certificate", f"{path} has no key and certificate in PEM: {error}.", advice) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        message = f"The key in {path} is not the one of its certificate."
        raise RequestError("bad_certificate", message, "Move it away, then run `koala sites init`.")
    if certificate.not_valid_after_utc - datetime.now(UTC) > _RENEW:
        return Identity(key, certificate)
    site = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    renewed = certified(str(site), key)
    write_identity(path, renewed, replace=True)
    return renewed
