"""From koalad's request and the grid file's cluster to a batch job and to what the wrapper reads of it."""

import os
import pwd
import sys
from typing import Any, Dict, List, NamedTuple

from koalapy_adapters.batch.protocol import BatchJob, BatchSettings
from koalapy_adapters.batch.text import is_launcher
from koalapy_adapters.errors import RequestError
from koalapy_adapters.examination import probe
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Component, Directories
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages.koalad import ClusterConfig
from koalapy_adapters.messages.relay import RELAY_PROTOCOL

WALLTIME_MARGIN = 60  # seconds beyond program and barrier, where koalad names no walltime of the batch job
_INHERITED = (
    "processors_per_node",
    "queue",
    "account",
    "qos",
    "reservation",
    "constraint",
    "parallel_environment",
)


class SharedJobSpec(NamedTuple):
    """Values that all attempts on this cluster share. `pushed`: the pushed file as the compute nodes see it."""

    config: ClusterConfig
    directories: Directories
    pushed: str


def batch_settings(config: ClusterConfig, shared: str, pushed: str, instance: str = "") -> BatchSettings:
    """The cluster as a dialect sees it; `pushed` is the pushed file on the head node, `instance` the store's."""
    fields = {name: value for name, value in config._asdict().items() if name in BatchSettings._fields}
    user = pwd.getpwuid(os.getuid()).pw_name
    return BatchSettings(
        user=user, directory=shared, command=interpreter(sys.executable, pushed), instance=instance, **fields
    )


def interpreter(python: str, pushed: str) -> List[str]:
    """The command that starts the pushed file, untouched by what a user may have installed."""
    return [python, "-I", "-S", pushed]


def batch_job(recipe: SharedJobSpec, action: do.Prepare) -> BatchJob:
    """The request of the component over the grid file's. Raises RequestError for wishes that are none."""
    config, requested = recipe.config, action.batch
    fields: Dict[str, Any] = {name: getattr(config, name) for name in _INHERITED}
    if config.launchers_environment and is_launcher(action.tag):
        fields["parallel_environment"] = config.launchers_environment
    fields.update((name, value) for name, value in requested.items() if value is not None and name in BatchJob._fields)
    fields["native"] = list(config.native) + list(requested.get("native") or [])
    fields["exclusive"] = config.exclusive or bool(requested.get("exclusive"))
    fields.setdefault("walltime_s", _walltime(action.program))
    directory = recipe.directories.attempt(action.tag)
    command = [*interpreter(config.python, recipe.pushed), "wrapper", directory]
    fields.update(tag=action.tag, directory=directory, command=command)
    if requested.get("probe"):
        looking = probe.command(config.python, directory, requested["probe"], *action.program["arguments"])
        fields.update(command=looking)
    try:
        return probe.Probe(**fields) if requested.get("probe") else BatchJob(**fields)
    except TypeError as error:
        raise RequestError("bad_request", "The batch job is not described well: %s." % error) from error


def component(recipe: SharedJobSpec, action: do.Prepare, job: BatchJob, script: str) -> Component:
    """Make what the wrapper reads, and the batch script that starts it."""
    config, directories = recipe.config, recipe.directories
    program = dict(action.program, setup=list(config.setup) + list(action.program.get("setup") or []))
    data = {
        "tag": action.tag,
        "instance": directories.instance,
        "cluster": directories.cluster,
        "batch": config.batch,
        "shared": directories.shared,
        "orphan_timeout": config.orphan_timeout,
        "relay": config.relay,
        "relay_protocol": RELAY_PROTOCOL,
        "python": config.python,
        "command": interpreter(config.python, recipe.pushed),
        "walltime_s": job.walltime_s,
        "program": program,
    }
    return Component(action.tag, data, script, action.staged)


def _walltime(program: Dict[str, Any]) -> int:
    return int(program.get("walltime", 0) + program.get("barrier_timeout", 0)) + WALLTIME_MARGIN
