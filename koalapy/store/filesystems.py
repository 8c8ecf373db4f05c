"""File systems that can hold a SQLite database in WAL mode: those of this host alone."""

import os
import re
from pathlib import Path

from koalapy.store.errors import StoreError

MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = {
    *("nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "coda", "davfs", "9p", "vboxsf"),
    *("lustre", "gpfs", "mmfs", "beegfs", "beegfs_nodev", "panfs", "ceph", "glusterfs", "orangefs", "pvfs2", "wekafs"),
    *("ocfs2", "gfs", "gfs2", "quobyte", "moosefs", "lizardfs", "juicefs", "daos", "dfuse"),
}
_FUSE = {"sshfs", "s3fs", "gcsfuse", "rclone", "cephfs", "ceph-fuse", "goofys", "curlftpfs", "hdfs", "fuse_dfs", "mfs"}
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def refuse_network(directory: Path, mounts: Path = MOUNTS) -> None:
    """Check that the directory, which exists, does not lie on a network file system.

    Raises StoreError `store_on_network` if it does. SQLite's write-ahead log needs memory that all of its users share,
    and reliable locks: https://sqlite.org/wal.html, https://sqlite.org/lockingv3.html#how_to_corrupt. A host without
    /proc is trusted.
    """
    try:
        table = mounts.read_bytes()
    except OSError:
        return
    kind = kind_of(os.fsencode(directory.resolve()), table)
    if not is_network(kind):
        return
    raise StoreError(
        "store_on_network",
        f"The directory {directory} lies on a network file system ({kind}), where a database can be damaged.",
        "Name a local disk: `store: sqlite:////local/disk/koala.sqlite` in the grid file, or use `postgresql://`.",
    )


def kind_of(path: bytes, table: bytes) -> str:
    """Return the type of the file system that an absolute path without links is on, by the text of mountinfo(5).

    Of several mounts on one place the last counts. The type is "" if the table has none for the path.
    """
    found, longest = "", -1
    for line in table.splitlines():
        fields, _, rest = line.partition(b" - ")
        place = _ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), fields.split(b" ")[4])
        inside = path == place or path.startswith(place.rstrip(b"/") + b"/")
        if inside and len(place) >= longest:
            found, longest = rest.split(b" ")[0].decode("ascii", "replace"), len(place)
    return found


def is_network(kind: str) -> bool:
    """Return whether other hosts can write to file systems of this type.

    FUSE names the real type after a dot: `fuse.sshfs`.
    """
    base, _, helper = kind.lower().partition(".")
    if base == "fuse":
        return helper in _NETWORK | _FUSE
    return base in _NETWORK
