"""The six architectures of the SC'07 paper (section 5.4), each over the same clusters and jobs."""

from collections.abc import Callable, Mapping

from koalapy.simulation.interop.architectures.centralised import central, cern
from koalapy.simulation.interop.architectures.delegated import dmm
from koalapy.simulation.interop.architectures.flocking import fcondor
from koalapy.simulation.interop.architectures.independent import condor, sep_c
from koalapy.simulation.interop.architectures.stage import Stage

ARCHITECTURES: Mapping[str, Callable[[Stage], None]] = {
    "cern": cern,
    "condor": condor,
    "dmm": dmm,
    "fcondor": fcondor,
    "central": central,
    "sep-c": sep_c,
}
