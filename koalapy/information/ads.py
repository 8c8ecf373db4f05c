"""A cluster's ad: what the grid file states of the cluster and what is measured, with the names of the GLUE schema.

GLUE 1.x is the schema by which the European grids published their computing elements; JDL files use its names.
"""

from collections.abc import Iterator

from koalapy.information.kis import ClusterSummary, Known
from koalapy.model.cluster import Value
from koalapy.model.matching import OTHER_NAMES, ClusterAd

_MIB = 1 << 20  # GLUE's unit of memory


def cluster_ad(known: Known, summary: ClusterSummary) -> ClusterAd:
    """Return the ad of a cluster. What is not known of it is not there, and so undefined."""
    found = {name.casefold(): (name, value) for name, value in summary.settings.attributes}
    for name, value in _measured(known, summary):
        found.setdefault(name.casefold(), (name, value))
    for key, (_, value) in [*found.items()]:
        if key in OTHER_NAMES:
            found.setdefault(OTHER_NAMES[key].casefold(), (OTHER_NAMES[key], value))
    return ClusterAd(summary.name, tuple(found.values()))


def _measured(known: Known, summary: ClusterSummary) -> Iterator[tuple[str, Value]]:
    settings, state, machine = summary.settings, summary.state, known.machine
    yield "Name", summary.name
    yield "Network", settings.network
    yield "LRMSType", settings.batch
    yield "GlueCEStateStatus", "Draining" if settings.draining else "Production"
    texts = {
        "LRMSVersion": known.version,
        "OpSys": machine.system,
        "OpSysRelease": machine.release,
        "Architecture": machine.architecture,
    }
    yield from ((name, text) for name, text in texts.items() if text)
    if machine.speed:
        yield "Speed", machine.speed
    if machine.mpi:
        yield "MPI", machine.mpi
        yield "RunTimeEnvironment", tuple(flavour.upper() for flavour in machine.mpi)
    if state is not None:
        yield "TotalCPUs", summary.total
        yield "FreeCPUs", summary.idle
        yield "WaitingJobs", state.waiting_local
        if state.memory is not None:
            yield "Memory", state.memory // _MIB
