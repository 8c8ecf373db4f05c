"""MPI programs: which mpirun a node has, and how it starts the ranks with the node agents in place of ssh.

Open MPI: mpirun(1), and its parameters plm_rsh_agent and plm_rsh_no_tree_spawn. MPICH: the manual of Hydra, its options
-launcher and -launcher-exec. Both run the command `launcher HOST WORD...`, as they would run ssh.
"""

import os
from typing import Dict, List, Mapping, Optional, Sequence

from koalapy_adapters import layout
from koalapy_adapters.host.mpirun import MPICH, OPENMPI, Mpirun, installed
from koalapy_adapters.host.spawn import encoded
from koalapy_adapters.wrapper.events import Json, Node, failure
from koalapy_adapters.wrapper.program.executable import NoExecutable

_NAMES = {OPENMPI: "Open MPI", MPICH: "MPICH"}
_LOADERS = "slurm,tm,gridengine,lsf,alps"  # of Open MPI: they would take the batch system's nodes, and its launcher


def find(environment: Mapping[str, str], wanted: Optional[str]) -> Mpirun:
    """Return the mpirun of the wanted flavour on the environment's PATH; without one, the first of any flavour.

    Raises NoExecutable if there is none.
    """
    there = []
    for mpirun in installed(environment):
        if wanted in (None, mpirun.flavour):
            return mpirun
        there.append(mpirun.flavour)
    raise NoExecutable(_missing(wanted, there))


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
    echo "mpirun gives its processes no rank." >&2
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


def _missing(wanted: Optional[str], there: List[str]) -> Json:
    name = "Open MPI or MPICH" if wanted is None else _NAMES[wanted]
    message = "No mpirun of %s is on the PATH of the cluster's nodes." % name
    if there:
        message = "No mpirun of %s is on the PATH of the cluster's nodes, but one of %s is." % (name, _NAMES[there[0]])
    return failure("no_mpi", "request", message, "Load one with `setup`, or name a cluster that has it.")


def _quoted(words: Sequence[str]) -> str:
    return " ".join("'%s'" % word.replace("'", "'\\''") for word in words)


def _write(path: str, mode: int, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encoded(text))
