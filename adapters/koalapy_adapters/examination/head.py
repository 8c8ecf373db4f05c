"""Examines the cluster from its head node, one check at a time: what koalad asks by messages.Diagnose."""

import os
import shutil
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters import layout
from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import BatchError, RequestError, Result
from koalapy_adapters.examination.protocol import Misnamed, Queue, chosen, examiner, nearest
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, failure_of, load
from koalapy_adapters.kcm.execution.drmaa.helper import TUNABLES, find_library
from koalapy_adapters.kcm.execution.subprocess_runner import run
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.shared_directory.errors import unusable
from koalapy_adapters.messages.koalad import ClusterConfig

Json = Dict[str, Any]

TIMEOUT = 30.0  # seconds for one command
_NOBODYS = "k" + 14 * "0"  # a tag that no job has
_SAMPLE = b"koala" * 13107  # 64 KiB, so that a file system with room for names only is found out


class Head(NamedTuple):
    """The head node under examination. `batch` runs the batch system's commands, and knows the cluster."""

    config: ClusterConfig
    batch: BatchSystem
    directories: Directories


def diagnose(head: Head, check: str) -> Json:
    """The findings of a check, or `failure` (see messages.Failure) with the correct `value`, if one is known.

    Raises RequestError if there is no such check.
    """
    if check not in _CHECKS:
        raise RequestError("no_such_check", "There is no check named %s." % check)
    try:
        return _CHECKS[check](head)
    except BatchError as error:
        return {"failure": failure_of(error), "value": getattr(error, "value", "")}


def _shared(head: Head) -> Json:
    """Check that a file can be written, linked and read back, as those of attempts; and find the free space."""
    path = head.directories.own
    trial = os.path.join(path, "trial.%s.%d" % (os.uname().nodename, os.getpid()))
    try:
        head.directories.create()
        _try_file(trial)
        left = os.statvfs(path)
    except OSError as error:
        raise unusable(head.directories.shared, error) from error
    finally:
        _discard(trial, trial + ".link")
    return {
        "path": head.directories.shared,
        "free_bytes": left.f_bavail * left.f_frsize,
        "free_files": left.f_favail if left.f_files else None,
    }


def _try_file(path: str) -> None:
    with open(path, "wb") as file:
        file.write(_SAMPLE)
        file.flush()
        os.fsync(file.fileno())
    os.link(path, path + ".link")
    with open(path + ".link", "rb") as file:
        if file.read() != _SAMPLE or os.stat(path).st_nlink != 2:
            raise OSError(0, "what was written is not what is read there")


def _batch(head: Head) -> Json:
    """Find the batch system's version, and check its server: some commands print a version without the server."""
    description = head.batch.describe()
    dialect, cluster = load(head.config.batch), head.batch.cluster
    dialect.parse_find(_run(dialect.find_argv(cluster, _NOBODYS)), _NOBODYS)
    command = dialect.describe_argv(cluster)[0]
    return {"version": description.version, "features": description.features, "command": shutil.which(command)}


def _queue(head: Head) -> Json:
    """Find the first queue of the grid file that accepts jobs."""
    module = examiner(head.config.batch)
    if module is None:
        capacity = head.batch.capacity()
        return {"processors": capacity.total, "idle": capacity.idle}
    known = module.queues(_run, head.batch.cluster)
    ours = chosen(known, head.batch.cluster)
    if not ours:
        raise _no_queue(head.config.queue, known)
    open_ = [queue for queue in ours if not queue.closed]
    if not open_:
        raise _closed(ours[0], known)
    return dict(open_[0]._asdict())


def _no_queue(name: Optional[str], known: List[Queue]) -> Misnamed:
    names = [queue.name for queue in known]
    message = "There is no queue named %s." % name if name else "The batch system has no default queue."
    value = nearest(name, names, [queue.name for queue in known if queue.default])
    return Misnamed("no_such_queue", message, "There %s." % _listed(names), value)


def _closed(queue: Queue, known: List[Queue]) -> Misnamed:
    others = [each.name for each in known if not each.closed]
    message = "The queue %s starts no jobs: %s." % (queue.name, queue.closed)
    advice = "Ask the administrators when it opens" + (
        ", or use another: there %s." % _listed(others) if others else "."
    )
    return Misnamed("queue_closed", message, advice, "")


def _listed(names: List[str]) -> str:
    if not names:
        return "is none that you may see"
    return "%s %s" % ("is" if len(names) == 1 else "are", ", ".join(names))


def _access(head: Head) -> Json:
    module = examiner(head.config.batch)
    words = None if module is None else module.try_access(_run, head.batch.cluster)
    return {"words": words, "launchers": launcher_environment(head.config, head.batch)}


def _span(head: Head) -> Json:
    module = examiner(head.config.batch)
    return {"options": None if module is None else module.span(_run, head.batch.cluster)}


def _lowest(head: Head) -> Json:
    module = examiner(head.config.batch)
    found = None if module is None else module.lowest(_run, head.batch.cluster)
    return {"lowest": None if found is None else dict(found._asdict())}


def _drmaa(head: Head) -> Json:
    """Open and close a DRMAA session in a helper process, which may crash."""
    dialect = load(head.config.batch)
    wanted = find_library(head.config.drmaa, dialect)
    if wanted is None:
        return {"library": None}
    library = wanted.path
    if not os.path.exists(library):
        message = "There is no library %s on the head node." % library
        found = find_library("auto", dialect)
        raise Misnamed(
            "no_drmaa_library", message, "Name the cluster's own libdrmaa, or none.", found.path if found else "off"
        )
    helper = [*head.batch.cluster.command, "drmaa-helper"]
    result = _run(["env", "GLIBC_TUNABLES=" + TUNABLES, "DRMAA_LIBRARY_PATH=" + library, *helper])
    if result.exit_status != 0 or '"contact"' not in result.stdout:
        message = "The library %s opens no DRMAA session." % library
        advice = "Without it the batch system's commands are used, which is slower, and as safe."
        error = Misnamed("no_drmaa_session", message, advice, "off")
        error.result = result._replace(stdout="", stderr=_last_line(result.stderr))
        raise error
    return {"library": library}


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def _relay(head: Head) -> Json:
    """Find where the relay listens for compute nodes."""
    directories = head.directories
    try:
        data = layout.read_json(layout.relay_file(directories.shared, directories.instance, directories.cluster))
    except (OSError, ValueError) as error:
        raise unusable(directories.own, error) from error
    found = data or {"addresses": [], "port": 0}
    addresses = found["addresses"] + found.get("last", [])
    return {"kind": head.config.relay, "addresses": addresses, "port": found["port"]}  # but not its secret


def _head(head: Head) -> Json:
    return {"python": sys.executable, "host": os.uname().nodename}


def _run(argv: List[str]) -> Result:
    return run(argv, TIMEOUT).result


def _discard(*paths: str) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except OSError:
            pass


_CHECKS: Dict[str, Callable[[Head], Json]] = {
    "head": _head,
    "shared": _shared,
    "batch": _batch,
    "queue": _queue,
    "access": _access,
    "lowest": _lowest,
    "span": _span,
    "drmaa": _drmaa,
    "relay": _relay,
}


def launcher_environment(config: ClusterConfig, batch: BatchSystem) -> Optional[Dict[str, Any]]:
    """The environment of Launchers. Raises BatchError.

    `environment`: theirs, or None. `named`: the grid file names it. `loose`: the best one that controls no slaves, or
    None.
    """
    if not hasattr(load(config.batch), "launchers_environment"):
        return None
    own, named = config.parallel_environment, config.launchers_environment
    chosen = batch.launchers_environment(_job(batch, named or own))
    best = chosen.environment if chosen else own
    loose = chosen.environment if chosen and not chosen.controls else None
    return {"environment": named or best, "named": named is not None, "loose": loose}


def _job(batch: BatchSystem, environment: Optional[str]) -> BatchJob:
    """A batch job like that of a Launcher, as far as it is known in advance."""
    fields: Dict[str, Any] = {
        name: value for name, value in batch.cluster._asdict().items() if name in BatchJob._fields
    }
    fields.update(tag=_NOBODYS, command=["true"], processors=batch.cluster.processors_per_node or 1, walltime_s=60)
    return BatchJob(**dict(fields, parallel_environment=environment, lowest=True))
