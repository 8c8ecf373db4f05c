"""Nodes go back as soon as others want them: local jobs, and jobs of the grid that are no sweeps (CCGrid 2009, 2.2)."""

from collections.abc import Mapping, Sequence

from koalapy.core.core import Core
from koalapy.core.launchers import place, staying
from koalapy.information.kis import Known
from koalapy.information.promises import processors_of
from koalapy.model.job import Job
from koalapy.policies.shares import Claimant, FairShare, wrong_reclaim
from koalapy.scavenging.asking import answer


def lacking(core: Core, known: Known, launchers: Sequence[Job]) -> int:
    """Processors that others want there, and that neither are idle nor will be once Launchers that go have gone."""
    state = known.state
    if state is None or known.settings.scavenge.native:
        return 0
    promises = core.information.promises
    promised, _ = promises.on(known.settings.name)
    scavenged = promises.of_sweeps(known.settings.name)
    stay = {each.id for each in staying(launchers)}
    going = sum(place(each).processors for each in launchers if each.id not in stay)
    idle = state.idle + processors_of(scavenged.freed) - scavenged.coming
    wanted = promised + state.wanted_local
    return max(0, wanted - idle - going) if wanted else 0


def most_held(claimants: Sequence[Claimant], cluster: str, nodes: int, policy: FairShare) -> tuple[dict[int, int], str]:
    """How many each runner gives up; where the policy fails, the youngest runners first. And what is wrong with its
    answer, or ''."""
    otherwise: Mapping[int, int] = _youngest_first(claimants, cluster, nodes)
    found, wrong = answer(
        lambda: policy.reclaim(claimants, cluster, nodes),
        lambda taken: wrong_reclaim(taken, claimants, cluster, nodes),
        otherwise,
    )
    return {sweep: count for sweep, count in found.items() if count}, wrong


def _youngest_first(claimants: Sequence[Claimant], cluster: str, nodes: int) -> dict[int, int]:
    taken: dict[int, int] = {}
    for each in reversed(claimants):
        taken[each.sweep] = min(nodes, each.holds.get(cluster, 0))
        nodes -= taken[each.sweep]
    return taken


def nodes_for(lack: int, launchers: Sequence[Job]) -> int:
    """How many of them must go, the largest nodes not counted twice."""
    count = 0
    for processors in sorted((place(each).processors for each in launchers), reverse=True):
        if lack <= 0:
            break
        lack, count = lack - processors, count + 1
    return count
