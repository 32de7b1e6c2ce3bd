"""Make the keys and certificates of a deployment, once; what exists already stays.

``server`` makes the authority that devices trust, the SuperLink's certificate and the secret that
the ServerApp's process shows. ``device`` makes a device's key, where the device is: the private
half never leaves it, and the public half, which is printed, is what the server enrols.
"""

import argparse
import datetime
import ipaddress
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
SERVER_DAYS = 730
RENEW_DAYS = 30  # a server certificate that ends sooner is replaced
_CLOCK_SKEW = datetime.timedelta(hours=1)


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file that others see complete or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _private_pem(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _certificate(
    name: str, days: int, key: ec.EllipticCurvePublicKey, issuer: str
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)  # devices' clocks are not exact
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the authority's certificate and key, made if they are not there."""
    key_path, path = folder / "ca.key", folder / "ca.crt"
    if not path.exists():
        key = ec.generate_private_key(ec.SECP384R1())
        name = f"forager authority {secrets.token_hex(4)}"
        built = _certificate(name, AUTHORITY_DAYS, key.public_key(), name)
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        built = built.add_extension(_usage(authority=True), critical=True)
        write(key_path, _private_pem(key, serialization.PrivateFormat.PKCS8))
        certificate = built.sign(key, hashes.SHA384())
        write(path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    loaded = serialization.load_pem_private_key(key_path.read_bytes(), None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate(path.read_bytes()), loaded


def general_name(name: str) -> x509.GeneralName:
    """Return a host name or an address as certificates hold it.

    >>> general_name("127.0.0.1")
    <IPAddress(value=127.0.0.1)>
    >>> general_name("fl.example.org")
    <DNSName(value='fl.example.org')>
    """
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def still_good(path: Path, names: Sequence[str], issuer: x509.Certificate) -> bool:
    """Return whether a server certificate has these names, is this authority's, and lasts."""
    if not path.exists():
        return False
    found = x509.load_pem_x509_certificate(path.read_bytes())
    held = set(found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    left = found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return (
        held == {general_name(name) for name in names}
        and found.issuer == issuer.subject
        and left > datetime.timedelta(days=RENEW_DAYS)
    )


def server_certificate(
    folder: Path, names: Sequence[str], issuer: x509.Certificate, signer: ec.EllipticCurvePrivateKey
) -> bool:
    """Make the SuperLink's certificate for the names that devices dial; False if it is there."""
    if still_good(folder / "server.crt", names, issuer):
        return False
    key = ec.generate_private_key(ec.SECP256R1())
    common = issuer.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    built = _certificate(names[0], SERVER_DAYS, key.public_key(), str(common))
    alternatives = x509.SubjectAlternativeName([general_name(name) for name in names])
    for extension, critical in (
        (alternatives, False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(authority=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
    ):
        built = built.add_extension(extension, critical=critical)
    certificate = built.sign(signer, hashes.SHA384())
    write(folder / "server.key", _private_pem(key, serialization.PrivateFormat.PKCS8))
    write(folder / "server.crt", certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return True


def device_key(folder: Path) -> str:
    """Return a device's public key, in OpenSSH's form; the pair is made if it is not there."""
    path = folder / "key"
    if not path.exists():
        made = ec.generate_private_key(ec.SECP384R1())
        write(path, _private_pem(made, serialization.PrivateFormat.OpenSSH))
    key = serialization.load_ssh_private_key(path.read_bytes(), None)
    form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return key.public_key().public_bytes(*form).decode()


def make_server(folders: argparse.Namespace) -> None:
    """Make what the server needs."""
    names = [name for name in folders.names.replace(",", " ").split() if name]
    issuer, signer = authority(folders.authority)
    if server_certificate(folders.superlink, names, issuer, signer):
        print(f"made the SuperLink's certificate for {', '.join(names)}")
    secret = folders.superlink / "superexec.secret"
    if not secret.exists():
        write(secret, secrets.token_hex(32).encode())
    write(folders.serverapp / secret.name, secret.read_bytes())
    for folder in (folders.superlink, folders.serverapp, folders.public):
        write(folder / "ca.crt", issuer.public_bytes(serialization.Encoding.PEM), 0o644)


def make_device(options: argparse.Namespace) -> None:
    """Make what a device needs, and print its public key."""
    target = options.folder / "ca.crt"
    text = sys.stdin.buffer.read() if options.ca == "-" else Path(options.ca).read_bytes()
    if text.strip() or not target.exists():
        try:
            x509.load_pem_x509_certificate(text)
        except ValueError:
            sys.exit("no certificate was given: pass the server's ca.crt, as in: ... < ca.crt")
        write(target, text, 0o644)
    public = f"{device_key(options.folder)} {options.name}\n"
    if options.publish:
        write(options.publish / f"{options.name}.pub", public.encode(), 0o644)
    print(public, end="")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(required=True)
    server = roles.add_parser("server")
    server.add_argument(
        "--names", required=True, help="host names and addresses, separated by commas"
    )
    for folder in ("authority", "public", "superlink", "serverapp"):
        server.add_argument(f"--{folder}", type=Path, required=True, metavar="FOLDER")
    server.set_defaults(make=make_server)
    device = roles.add_parser("device")
    device.add_argument("name")
    device.add_argument("--folder", type=Path, default=Path("/credentials"))
    device.add_argument("--ca", default="-", help="the server's ca.crt; - reads standard input")
    device.add_argument("--publish", type=Path, help="folder that gets the public key too")
    device.set_defaults(make=make_device)
    options = parser.parse_args(arguments)
    options.make(options)


if __name__ == "__main__":
    main()
