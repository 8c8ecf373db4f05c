"""MPI programs: which mpirun a node has, and how it starts the ranks with the node agents in place of ssh.

Open MPI: mpirun(1), and its parameters plm_rsh_agent and plm_rsh_no_tree_spawn. MPICH: the manual of Hydra, its options
-launcher and -launcher-exec. Both run the command `launcher HOST WORD...`, as they would run ssh.
"""

import os
import re
import subprocess
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from koalapy_adapters import layout
from koalapy_adapters.host.spawn import decoded, encoded
from koalapy_adapters.wrapper.events import Json, Node, failure
from koalapy_adapters.wrapper.program.executable import NoExecutable

OPENMPI, MPICH = "openmpi", "mpich"

_NAMES = {OPENMPI: "Open MPI", MPICH: "MPICH"}
# What `setup` lines bring is called mpirun. The other names tell two flavours on one node apart, as in Debian.
_COMMANDS = ("mpirun", "mpiexec", "mpirun.openmpi", "orterun", "mpiexec.hydra", "mpirun.mpich")
_SAYS = ((OPENMPI, re.compile(r"Open MPI|OpenRTE")), (MPICH, re.compile(r"HYDRA build details")))
_PATIENCE_S = 20.0  # with an mpirun on a slow network file system
_LOADERS = "slurm,tm,gridengine,lsf,alps"  # of Open MPI: they would take the batch system's nodes, and its launcher


class Mpirun(NamedTuple):
    """An mpirun: its flavour, and the absolute path of the command."""

    flavour: str
    path: str


def find(environment: Mapping[str, str], wanted: Optional[str]) -> Mpirun:
    """Return the mpirun of the wanted flavour on the environment's PATH; without one, the first of any flavour.

    Raises NoExecutable if there is none.
    """
    found: Dict[str, str] = {}
    for path in _paths(environment):
        flavour = _flavour(path, environment)
        if flavour is not None and wanted in (None, flavour):
            return Mpirun(flavour, path)
        if flavour is not None:
            found.setdefault(flavour, path)
    raise NoExecutable(_missing(wanted, sorted(found)))


def flavour_of(version: str) -> Optional[str]:
    """Return the flavour of the mpirun that printed this version; None for one that koalapy cannot use."""
    return next((flavour for flavour, says in _SAYS if says.search(version)), None)


def flavours(environment: Mapping[str, str]) -> List[str]:
    """Return the flavours on the environment's PATH, in the order of their names."""
    return sorted({flavour for flavour in (_flavour(path, environment) for path in _paths(environment)) if flavour})


def prepare(
    mpirun: Mpirun, directory: str, command: Sequence[str], nodes: Sequence[Node], program: Sequence[str]
) -> List[str]:
    """Write the files that mpirun gets into the attempt's directory. Returns the arguments of mpirun.

    `command`: starts the pushed file. `program`: the path of the component's executable, and its arguments. Raises
    OSError.
    """
    hosts, launcher, rank = (layout.inside(directory, "mpi-" + name) for name in ("hosts", "launcher", "rank"))
    _write(hosts, 0o600, host_file(mpirun, nodes))
    _write(launcher, 0o700, '#!/bin/sh\nexec %s remote-start "$@"\n' % _quoted(command))
    _write(rank, 0o700, _RANK % (_quoted([layout.inside(directory, "output")]), _quoted(program)))
    ranks = str(sum(node.processes for node in nodes))
    if mpirun.flavour == OPENMPI:
        return ["--hostfile", hosts, "-n", ranks, rank]
    # Without -genvnone the other nodes would get the first one's environment, and with it its rendezvous.
    return ["-launcher", "rsh", "-launcher-exec", launcher, "-f", hosts, "-genvnone", "-n", ranks, rank]


def host_file(mpirun: Mpirun, nodes: Sequence[Node]) -> str:
    """Return the text of the host file: each node, and the ranks on it."""
    form = "%s slots=%d\n" if mpirun.flavour == OPENMPI else "%s:%d\n"
    return "".join(form % node for node in nodes if node.processes)


def variables(mpirun: Mpirun, directory: str, own: Mapping[str, str]) -> Dict[str, str]:
    """Return what mpirun needs in its environment. `directory`: the attempt's. `own`: the component's environment.

    Nothing is bound to processors, unless the component's environment does it: other jobs may run on the node.
    """
    if mpirun.flavour != OPENMPI:
        return {}
    launcher = layout.inside(directory, "mpi-launcher")
    found = {}
    # Until version 4 the daemons are ORTE's; from 5 on they are PRRTE's, whose launcher has another name.
    for prefix, binding, remote in (("OMPI_MCA_", "hwloc_base", "rsh"), ("PRTE_MCA_", "hwloc_default", "ssh")):
        policy = "%s%s_binding_policy" % (prefix, binding)
        found[policy] = own.get(policy, "none")
        found[prefix + "plm"] = remote
        found["%splm_%s_agent" % (prefix, remote)] = launcher
        found["%splm_%s_no_tree_spawn" % (prefix, remote)] = "1"
        found[prefix + "ras"] = "^" + _LOADERS
    return found


# In each rank mpirun starts this, which becomes the program: no mpirun reads the program's words, or passes its output.
_RANK = """#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK-${PMI_RANK-}}
if [ -z "$rank" ]; then
    echo "mpirun tells its processes no rank." >&2
    exit 127
fi
KOALA_RANK=$((KOALA_RANK + rank))
KOALA_LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK-${MPI_LOCALRANKID-0}}
export KOALA_RANK KOALA_LOCAL_RANK
if [ -n "${KOALA_TMPDIR-}" ]; then
    TMPDIR=$KOALA_TMPDIR
    export TMPDIR
else
    unset TMPDIR
fi
unset KOALA_TMPDIR
output=%s
exec %s >>"$output/$KOALA_RANK.out" 2>>"$output/$KOALA_RANK.err"
"""


def _paths(environment: Mapping[str, str]) -> List[str]:
    """The commands that may be an mpirun, each as it is first on the PATH; one that has two names only once."""
    found: Dict[str, str] = {}
    for name in _COMMANDS:
        for place in environment.get("PATH", "/usr/bin:/bin").split(":"):
            path = os.path.join(place, name)
            if os.path.isabs(path) and os.path.isfile(encoded(path)) and os.access(encoded(path), os.X_OK):
                found.setdefault(decoded(os.path.realpath(encoded(path))), path)
                break
    return list(found.values())


def _flavour(path: str, environment: Mapping[str, str]) -> Optional[str]:
    variables = {encoded(name): encoded(value) for name, value in environment.items()}
    try:
        said = subprocess.run(
            [encoded(path), b"--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=variables,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return flavour_of(said.stdout.decode("utf-8", "replace"))


def _missing(wanted: Optional[str], found: List[str]) -> Json:
    name = "Open MPI or MPICH" if wanted is None else _NAMES[wanted]
    message = "No mpirun of %s is on the PATH of the cluster's nodes." % name
    if found:
        message = "No mpirun of %s is on the PATH of the cluster's nodes, but one of %s is." % (name, _NAMES[found[0]])
    return failure("no_mpi", "request", message, "Load one with `setup`, or name a cluster that has it.")


def _quoted(words: Sequence[str]) -> str:
    return " ".join("'%s'" % word.replace("'", "'\\''") for word in words)


def _write(path: str, mode: int, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encoded(text))
