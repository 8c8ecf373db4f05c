"""Survey an unknown head node for `koala init`, and print one JSON document."""

import json
import os
import platform
import shutil
import sys
from types import ModuleType
from typing import Any, Dict, List, Optional, Tuple

from koalapy_adapters import strict_modes
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import BatchError, Result
from koalapy_adapters.examination import pbs, sge, slurm
from koalapy_adapters.kcm.execution.batch_system import load
from koalapy_adapters.kcm.execution.drmaa.helper import find_library
from koalapy_adapters.kcm.execution.subprocess_runner import run

Json = Dict[str, Any]

TIMEOUT = 20.0  # seconds for one command
AWAY = "koala-init-"  # prefix of directories that are made for one survey alone
_OWN = ("SCRATCH", "WORK", "WORKDIR", "DATA")  # by which clusters name a user's own directory on a shared file system
_REMOTE = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cephfs", "ceph", "glusterfs", "afs", "panfs", "pvfs2")


def main(argv: List[str]) -> int:
    """Run the command `survey`. Returns 0 whatever it finds."""
    sys.stdout.write(json.dumps(survey(strict_modes.HERE.user(os.getuid()))) + "\n")
    place = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
    if os.path.basename(place).startswith(AWAY):
        shutil.rmtree(place, ignore_errors=True)
    return 0


def survey(user: str) -> Json:
    """`systems`: what was found of each batch system whose commands are there, the likeliest first.

    `shared`: what may take the place of ~/.koala: a directory that only the user can replace, "" if none is known.
    """
    home = os.path.expanduser("~")
    kind = file_system(home, _mounts())
    return {
        "host": platform.node(),
        "user": user,
        "python": sys.executable,
        "python_version": platform.python_version(),
        "processors": os.cpu_count() or 1,
        "home": home,
        "home_kind": kind,
        "home_remote": kind in _REMOTE or kind.startswith("fuse."),
        "shared": _shared(),
        "systems": [_system(name, module, user) for name, module in _present()],
    }


def _shared() -> str:
    own = [os.environ[name] for name in _OWN if os.environ.get(name, "").startswith("/")]
    for parent in [place for place in own if os.access(place, os.W_OK | os.X_OK)]:
        if _is_closed(os.path.join(parent, "koala")):
            return os.path.join(parent, "koala")
    return ""


def _is_closed(path: str) -> bool:
    try:
        return strict_modes.refusal(path) is None
    except OSError:
        return False


def _present() -> List[Tuple[str, ModuleType]]:
    """The installed batch systems. Slurm may have its own qstat and pbsnodes, and Grid Engine has a qstat."""
    if all(map(shutil.which, slurm.COMMANDS)):
        return [("slurm", slurm)]
    if all(map(shutil.which, sge.COMMANDS)):
        return [("sge", sge)]
    if all(map(shutil.which, pbs.COMMANDS)):
        return [("pbs", pbs)]
    return []


def _system(name: str, module: ModuleType, user: str) -> Json:
    """The batch system's version, queues, accounts and environments; `error` is its answer if it refuses."""
    cluster = BatchSettings(user=user)
    found: Json = {"batch": name, "version": "", "queues": [], "accounts": [], "environments": [], "drmaa": None}
    found.update(profile=slurm.profile(os.environ) if name == "slurm" else {}, processors_per_node=None)
    try:
        found["batch"], found["version"] = _version(name, cluster)
        found["queues"] = [queue._asdict() for queue in module.queues(_run, cluster)]
        found["accounts"] = module.accounts(_run, cluster)
        if found["batch"] == "torque":
            found["processors_per_node"] = pbs.usual_size(_run)
        if name == "sge":
            found["environments"] = [each._asdict() for each in sge.environments(_run)]
            library = find_library("auto", load(name))
            found["drmaa"] = library.path if library is not None else None
    except BatchError as error:
        found["error"] = error.message
    return found


def _version(name: str, cluster: BatchSettings) -> Tuple[str, str]:
    """The version, by the dialect that can read the answer: OpenPBS and Torque have the same commands."""
    names = ["pbs", "torque"] if name == "pbs" else [name]
    first: Optional[BatchError] = None
    for each in names:
        dialect = load(each)
        try:
            return each, dialect.parse_describe(_run(dialect.describe_argv(cluster))).version
        except BatchError as error:
            first = first or error
    assert first is not None
    raise first


def file_system(path: str, mounts: str) -> str:
    """The kind of the file system that a path lies on, by the text of /proc/mounts; "" if it does not list it."""
    kinds = {}
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) > 2:
            kinds[fields[1]] = fields[2]
    while path not in kinds and path != "/":
        path = os.path.dirname(path)
    return kinds.get(path, "")


def _mounts() -> str:
    try:
        with open("/proc/mounts") as file:
            return file.read()
    except OSError:
        return ""


def _run(argv: List[str]) -> Result:
    return run(argv, TIMEOUT).result
