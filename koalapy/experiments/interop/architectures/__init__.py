"""The six architectures of the SC'07 paper (section 5.4), each over the same clusters and jobs."""

from collections.abc import Callable, Mapping

from koalapy.experiments.interop.architectures.centralised import central, cern
from koalapy.experiments.interop.architectures.delegated import dmm
from koalapy.experiments.interop.architectures.flocking import fcondor
from koalapy.experiments.interop.architectures.independent import condor, sep_c
from koalapy.experiments.interop.architectures.simulation import Simulation

ARCHITECTURES: Mapping[str, Callable[[Simulation], None]] = {
    "cern": cern,
    "condor": condor,
    "dmm": dmm,
    "fcondor": fcondor,
    "central": central,
    "sep-c": sep_c,
}
