"""Where sweeps may grow now: every cluster's nodes, as found in each step, and what may be expected of them."""

from collections.abc import Mapping
from dataclasses import replace

from koalapy.core.core import Core
from koalapy.core.launchers import place
from koalapy.information.kis import View
from koalapy.model.events import ClusterMeasured
from koalapy.model.learned import Learned
from koalapy.model.settings import DYNAMIC
from koalapy.model.units import Instant
from koalapy.policies.idleness import IdlenessPolicy
from koalapy.scavenging.nodes import Nodes, look, node_size
from koalapy.scavenging.prediction import Prediction


def on_measured(core: Core, now: Instant, event: ClusterMeasured) -> None:
    """What is found without any sweep is only to be learned from where something depends on it."""
    if core.launchers.sweeps or core.settings.scavenging.admission == DYNAMIC:
        known = core.information.clusters[event.cluster]
        core.node_sizes[event.cluster] = node_size(known, core.node_sizes.get(event.cluster, 0))
        core.nodes_changed = True


class Ground:
    """`nodes`: what was found in this step. `learned`: by a former koalad, perhaps of clusters that are no more."""

    def __init__(self, core: Core, policy: IdlenessPolicy, learned: Learned) -> None:
        self.nodes: dict[str, Nodes] = {}
        pasts = tuple(past for past in learned.pasts if past.cluster in core.information.clusters)
        offsets = core.settings.scavenging.offsets
        self.prediction = Prediction(offsets=offsets, learned=replace(learned, pasts=pasts))
        self._policy = policy

    def shown(self, core: Core) -> dict[str, int]:
        """As `core.node_sizes`, with what clusters show now, which is not taken down while there are no sweeps."""
        clusters, sizes = core.information.clusters, core.node_sizes
        return {name: node_size(known, sizes.get(name, 0)) for name, known in clusters.items()}

    def survey(self, core: Core, now: Instant) -> None:
        """Look at every cluster's nodes, and learn from them if something was measured since the last step."""
        views = {view.name: view for view in core.information.views(now)}
        self.nodes = {name: self._look(core, now, views[name]) for name in core.information.clusters}
        if core.nodes_changed:
            core.nodes_changed = False
            for name, each in self.nodes.items():
                self.prediction.observe(now, name, each.allowed if name in core.information.reachable else 0)

    @property
    def idle(self) -> Mapping[str, int]:
        """Nodes that could be had now."""
        return {name: len(each.idle) for name, each in self.nodes.items()}

    def predicted(self, now: Instant) -> float:
        """Nodes that sweeps may expect to have, grid-wide; before anything was learned those that they may have now."""
        return self.prediction.forecast(now) or float(sum(each.allowed for each in self.nodes.values()))

    def _look(self, core: Core, now: Instant, view: View) -> Nodes:
        name = view.name
        known, there = core.information.clusters[name], core.launchers.on(name)
        sizes = [node_size(known, core.node_sizes.get(name, 0)), *(place(each).processors for each in there)]
        size = core.node_sizes[name] = max(sizes)
        return look(core, now, known, view, len(there), size, self._policy)
