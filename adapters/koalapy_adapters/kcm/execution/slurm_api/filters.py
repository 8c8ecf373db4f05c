"""Filters of jobs in sbatch, set by a cluster or a user, that a job would bypass on its way through the API."""

import glob
import os
import shutil
from typing import Iterator, List, Mapping, Sequence

NULL = "(null)"
_ELF = b"\x7fELF"

# spank(7): what Slurm looks for in a plugin on the side that submits, and nothing else.
_OF_SUBMITTERS = (b"slurm_spank_init", b"slurm_spank_exit", b"slurm_spank_local_user_init", b"spank_options")
_READ = 8 << 20  # bytes of a plugin
_DEPTH = 8  # of files that include each other


class _Hindered(Exception):
    """Why it would be passed by, or may be."""


def hindrance(settings: Mapping[str, str], environ: Mapping[str, str], command: str) -> str:
    """Why `command` has to submit; "" if another program may. `settings`: the output of `scontrol show config`."""
    try:
        _look_at_command(command, environ)
        _look_at_filters(settings)
        _look_at_plugins(settings, environ)
    except _Hindered as why:
        return str(why)
    except OSError as error:
        return "%s cannot be looked at (%s)" % (error.filename, error.strerror)
    return ""


def _look_at_command(command: str, environ: Mapping[str, str]) -> None:
    """A script of the cluster's, or a link to a program of another name, does more than the command."""
    path = shutil.which(command, path=environ.get("PATH"))
    if path is None:
        raise _Hindered("there is no %s on the PATH" % command)
    with open(path, "rb") as file:
        own = file.read(len(_ELF)) == _ELF
    if not own or os.path.basename(os.path.realpath(path)) != command:
        raise _Hindered("%s is the cluster's own" % path)


def _look_at_filters(settings: Mapping[str, str]) -> None:
    filters = settings.get("CliFilterPlugins", "unknown")
    if filters != NULL:
        raise _Hindered("the cluster has CliFilterPlugins (%s)" % filters)


def _look_at_plugins(settings: Mapping[str, str], environ: Mapping[str, str]) -> None:
    for name in _plugins(_plugstack(settings, environ), 0):
        path = _found(name, settings.get("PluginDir", ""))
        with open(path, "rb") as file:
            text = file.read(_READ + 1)
        if len(text) > _READ or any(symbol in text for symbol in _OF_SUBMITTERS):
            raise _Hindered("the SPANK plugin %s may have a part in it" % path)


def _plugstack(settings: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Its path. A node without a slurm.conf has one from the controller, and nobody knows what is in it."""
    conf = environ.get("SLURM_CONF") or settings.get("SLURM_CONF", "")
    if not os.path.isfile(conf):
        raise _Hindered("there is no %s here, whose plugins could be looked at" % (conf or "slurm.conf"))
    path = settings.get("PlugStackConfig", NULL)
    return os.path.join(os.path.dirname(conf), "plugstack.conf") if path == NULL else path


def _plugins(path: str, depth: int) -> Iterator[str]:
    """Read the lines of this file of plugstack.conf(5), if it exists, and of the files that it includes."""
    if depth > _DEPTH:
        raise _Hindered("files include each other around %s" % path)
    if not os.path.exists(path):
        return
    with open(path) as file:
        lines = [line.split("#")[0].split() for line in file]
    for words in lines:
        if words and words[0] == "include" and len(words) == 2:
            for each in _matching(words[1], path):
                yield from _plugins(each, depth + 1)
        elif words and words[0] in ("required", "optional") and len(words) > 1:
            yield words[1]
        elif words:
            raise _Hindered("%s has a line that cannot be read: %s" % (path, " ".join(words)))


def _matching(pattern: str, path: str) -> List[str]:
    return sorted(glob.glob(os.path.join(os.path.dirname(path), pattern)))


def _found(name: str, directories: str) -> str:
    candidates: Sequence[str] = [os.path.join(directory, name) for directory in directories.split(":")]
    for path in candidates:
        if os.path.isfile(path):
            return path
    raise _Hindered("the SPANK plugin %s is not found" % name)
