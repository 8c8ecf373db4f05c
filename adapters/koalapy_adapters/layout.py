"""Where things lie in a cluster's shared directory: one module that KCM, wrapper and node agent agree on.

SHARED/                         `shared` of the grid file, else ~/.koala
  bin/HASH.pyz                  what was pushed
  INSTANCE/                     one store's
    relay.CLUSTER.json          where the cluster's newest KCM listens, and its secret (mode 0600)
    post.CLUSTER.EPOCH.UNIQUE/  a KCM's directory of `relay: files`; see message_files
    heard.CLUSTER.json          the highest number of a Submit that the cluster has heard
    ended/TAG.json              the record of an attempt whose directory has gone, for some days
    stage/DIGEST                staged files by content
    TAG/                        one attempt
      component.json            what to run (mode 0600)
      token                     what its wrapper proves to know at the relay (mode 0600)
      script, batch.out         the batch script, and what the wrapper itself says
      start-lock                who decided on the start: the wrapper, or the KCM, which made the attempt void
      heartbeat                 touched while the wrapper lives
      record.json               how it ended
      post/                     the KCM's messages to the wrapper, for `relay: files`
      hosts, rendezvous         KOALA_HOSTS, KOALA_RENDEZVOUS
      output/RANK.out, RANK.err
      work/                     the program's working directory, with the staged files
      journal                   of a Launcher: what it has run; see launcher.journal
"""

import json
import os
from typing import Any, Optional

from koalapy_adapters.files import DISK, Files


def instance_directory(shared: str, instance: str) -> str:
    return os.path.join(shared, instance)


def attempt_directory(shared: str, instance: str, tag: str) -> str:
    return os.path.join(shared, instance, tag)


def relay_file(shared: str, instance: str, cluster: str) -> str:
    """Clusters of one grid may have one shared directory: a home that several heads mount."""
    return os.path.join(shared, instance, "relay.%s.json" % cluster)


def heard_file(shared: str, instance: str, cluster: str) -> str:
    return os.path.join(shared, instance, "heard.%s.json" % cluster)


def ended_record(shared: str, instance: str, tag: str) -> str:
    return os.path.join(shared, instance, "ended", "%s.json" % tag)


def staged_file(shared: str, instance: str, digest: str) -> str:
    return os.path.join(shared, instance, "stage", digest)


def inside(attempt: str, name: str) -> str:
    """A file of the attempt: component.json, token, script, start-lock, heartbeat, record.json, hosts, ..."""
    return os.path.join(attempt, name)


def output_file(attempt: str, rank: int, kind: str = "out") -> str:
    return os.path.join(attempt, "output", "%d.%s" % (rank, kind))


def slot_file(attempt: str, slot: int, kind: str = "out") -> str:
    """What all parameters of a Launcher's slot write: beside their working directory, which any of them may clear."""
    return os.path.join(attempt, "output", "slot-%d.%s" % (slot, kind))


def write_whole(path: str, data: bytes, mode: int = 0o600, files: Files = DISK, lasting: bool = True) -> None:
    """Write a file so that a reader sees all of it or nothing, and, if `lasting`, that it survives a crash of this
    node.
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
    """None where there is no such file. Raises ValueError for one that cannot be read as JSON."""
    try:
        return json.loads(files.read(path).decode())
    except FileNotFoundError:
        return None
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_number(path: str, key: str, files: Files = DISK) -> int:
    """The number from 0 to 2**62 that the JSON there has of this key; 0 if there is none, or no such file.

    Raises OSError where it cannot be read.
    """
    try:
        data = read_json(path, files)
    except ValueError:
        return 0
    number = data.get(key) if isinstance(data, dict) else None
    return number if type(number) is int and 0 <= number <= 1 << 62 else 0


def _discard(path: str, files: Files) -> None:
    """What is left of a file that could not be written, if anything is; the reason for that is what matters."""
    try:
        files.unlink(path)
    except OSError:
        pass
