"""Paths in a cluster's shared directory, the same for KCM, wrapper and node agent.

SHARED/                         `shared` of the grid file, else ~/.koala
  bin/HASH.pyz                  a pushed file
  bin/HASH.PYTHON.pyz           the same with modules compiled for a version of Python; see kcm.shared_directory
  INSTANCE/                     one store
    relay.CLUSTER.json          address and secret of the cluster's newest KCM (mode 0600)
    post.CLUSTER.EPOCH.UNIQUE/  a KCM's directory of `relay: files`; see message_files
    watermark.CLUSTER.json      the highest number of a Submit that the cluster has received
    ended/TAG.json              the exit record of an attempt whose directory is removed, for some days
    stage/DIGEST                staged files by content
    TAG/                        one attempt
      component.json            the component to run (mode 0600)
      token                     the secret that its wrapper proves to know at the relay (mode 0600)
      script, batch.out         the batch script, and the wrapper's own output
      start-lock                taken by the wrapper to start, or by the KCM to make the attempt void
      heartbeat                 touched while the wrapper lives
      record.json               the exit record
      post/                     the KCM's messages to the wrapper, for `relay: files`
      hosts, rendezvous         KOALA_HOSTS, KOALA_RENDEZVOUS
      mpi-hosts, mpi-launcher,  what mpirun gets for `launch: mpi`: its host file, its command in place of ssh,
      mpi-rank                  and the program; see wrapper.program.mpi
      output/RANK.out, RANK.err
      work/                     the program's working directory, with the staged files
        lease/                  of the program of a pilot that holds a lease: the directory of its KCM
          .koala/               SHARED for that KCM, and for the attempts on the lease
      journal                   the parameters that a Launcher has run; see launcher.journal
"""

import json
import os
from typing import Any, Optional

from koalapy_adapters.files import DISK, Files

LEASE_SHARED = ".koala"  # the shared directory of a lease's KCM, below the directory in which that is started
_WORK, _LEASE = "work", "lease"


def pushed_hash(path: str) -> str:
    """The hash of the pushed file, of its path or of that of its compiled copy."""
    return os.path.basename(path).partition(".")[0]


def instance_directory(shared: str, instance: str) -> str:
    return os.path.join(shared, instance)


def attempt_directory(shared: str, instance: str, tag: str) -> str:
    return os.path.join(shared, instance, tag)


def lease_directory(attempt: str) -> str:
    """Path of the directory in which the lender's KCM on a lease is started. `attempt`: that of the lease's pilot."""
    return os.path.join(attempt, _WORK, _LEASE)


def own_shared(work: str) -> str:
    """Return the shared directory of the cluster's own user.

    `work`: the working directory of an attempt there, or on a lease there.
    """
    shared = os.path.dirname(os.path.dirname(os.path.dirname(work)))
    above = os.path.join(os.sep, _WORK, _LEASE, LEASE_SHARED)
    return own_shared(shared[: -len(above)] + os.sep + _WORK) if shared.endswith(above) else shared


def relay_file(shared: str, instance: str, cluster: str) -> str:
    """Path of the relay's file.

    Its name has the cluster: clusters of one grid may share a directory, such as a home.
    """
    return os.path.join(shared, instance, "relay.%s.json" % cluster)


def watermark_file(shared: str, instance: str, cluster: str) -> str:
    """Path of the file with the highest number of a Submit that the cluster has received."""
    return os.path.join(shared, instance, "watermark.%s.json" % cluster)


def ended_record(shared: str, instance: str, tag: str) -> str:
    return os.path.join(shared, instance, "ended", "%s.json" % tag)


def staged_file(shared: str, instance: str, digest: str) -> str:
    return os.path.join(shared, instance, "stage", digest)


def inside(attempt: str, name: str) -> str:
    """Path of a file of the attempt: component.json, token, script, start-lock, heartbeat, record.json, hosts, ..."""
    return os.path.join(attempt, name)


def output_file(attempt: str, rank: int, kind: str = "out") -> str:
    return os.path.join(attempt, "output", "%d.%s" % (rank, kind))


def slot_file(attempt: str, slot: int, kind: str = "out") -> str:
    """Path of the output of all parameters of a Launcher's slot.

    It is outside their working directory, which they may clear.
    """
    return os.path.join(attempt, "output", "slot-%d.%s" % (slot, kind))


def write_whole(path: str, data: bytes, mode: int = 0o600, files: Files = DISK, lasting: bool = True) -> None:
    """Write a file whole: a reader sees all of it or nothing. Raises OSError if it cannot be written.

    If `lasting`, the file survives a crash of this node once this returns.
    """
    temporary = "%s.%s" % (path, files.process())
    try:
        files.write(temporary, data, mode, lasting)
        files.rename(temporary, path)
    except BaseException:
        _discard(temporary, files)
        raise


def write_json(path: str, data: Any, files: Files = DISK) -> None:
    write_whole(path, json.dumps(data, sort_keys=True).encode(), files=files)


def read_json(path: str, files: Files = DISK) -> Optional[Any]:
    """Read a JSON file; None if it does not exist.

    Raises ValueError if it is not JSON, OSError if it cannot be read.
    """
    try:
        return json.loads(files.read(path).decode())
    except FileNotFoundError:
        return None
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_number(path: str, key: str, files: Files = DISK) -> int:
    """Read the number of this key in a JSON file, from 0 to 2**62; 0 if there is no such file or number.

    Raises OSError if the file cannot be read.
    """
    try:
        data = read_json(path, files)
    except ValueError:
        return 0
    number = data.get(key) if isinstance(data, dict) else None
    return number if type(number) is int and 0 <= number <= 1 << 62 else 0


def _discard(path: str, files: Files) -> None:
    """Remove the rest of a file whose writing failed. An error here is ignored: the caller raises the first one."""
    try:
        files.unlink(path)
    except OSError:
        pass
