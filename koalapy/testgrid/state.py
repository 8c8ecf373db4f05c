"""The files of the test grid on this machine: key pair, known hosts, grid file, locks."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from koalapy.common.locations import home, refuse_open
from koalapy.testgrid import layout


def directory() -> Path:
    """Return `$XDG_STATE_HOME/koala/NAME`, made for its owner alone. Raises OurError if it is not safe from others."""
    states = Path(os.environ.get("XDG_STATE_HOME") or home() / ".local" / "state")
    made = states.absolute() / "koala" / layout.NAME
    made.mkdir(parents=True, exist_ok=True, mode=0o700)
    refuse_open(made)
    return made


def grid_file() -> Path:
    return directory() / "grid.yaml"


def identity_file() -> Path:
    return directory() / "id_ed25519"


def known_hosts_file() -> Path:
    return directory() / "known_hosts"


def public_key(identity: Path) -> str:
    """Return the public key of a private one as a line of `authorized_keys`. The first call makes the key pair."""
    if not identity.exists():
        _make_key_pair(identity)
    return Path(f"{identity}.pub").read_text().strip()


def write_known_hosts(host_keys: Mapping[str, str]) -> None:
    """Write the known hosts file. `host_keys`: lines such as `ssh-ed25519 AAAA…`, by address."""
    lines = [f"{address} {key}\n" for address, key in host_keys.items()]
    write(known_hosts_file(), "".join(lines).encode(), 0o600)


def write_grid_file(addresses: Mapping[str, str]) -> Path:
    """Write the grid file, and return its path. `addresses`: those of the head nodes, by cluster.

    All paths in the file are absolute.
    """
    clusters = {
        cluster.name: grid_entry(cluster, addresses[cluster.name], layout.USER, identity_file())
        for cluster in layout.CLUSTERS
    }
    document = {"grid": layout.NAME, "clusters": clusters}
    write(grid_file(), yaml.safe_dump(document, sort_keys=False).encode(), 0o600)
    return grid_file()


def forget() -> None:
    """Remove the grid file and the known hosts, which are invalid without the containers. The key pair stays."""
    for path in (grid_file(), known_hosts_file()):
        path.unlink(missing_ok=True)


@contextmanager
def reserved(purpose: str = "in-use") -> Iterator[None]:
    """Lock the test grid for one process; wait while another one holds it.

    The kernel releases the lock when the process ends, in any way.
    """
    with _locked(directory() / f"{purpose}.lock"):
        yield


@contextmanager
def engine_reserved() -> Iterator[None]:
    """Lock what all test grids of this user share, the images and the choice of subnets, for one process."""
    with _locked(directory().parent / "testgrids.lock"):
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def grid_entry(cluster: layout.Cluster, address: str, user: str, identity: Path) -> dict[str, str]:
    """Return the entry of a cluster in the grid file of one of its users. `identity`: the user's private key."""
    return {
        "batch": cluster.batch,
        "connect": f"ssh://{user}@{address}",
        **cluster.settings,
        **({"shared": f"{layout.SHARED}/{user}"} if cluster.has_shared_disk else {}),
        "identity": str(identity),
        "known_hosts": str(known_hosts_file()),
    }


def _make_key_pair(identity: Path) -> None:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    # The private key is written last: if it exists, the public key exists too.
    write(Path(f"{identity}.pub"), public + f" {layout.PROJECT}\n".encode(), 0o644)
    write(identity, private, 0o600)


def write(path: Path, content: bytes, mode: int) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.rename(path)
