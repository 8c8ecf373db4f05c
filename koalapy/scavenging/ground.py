"""Where sweeps may grow now: every cluster's nodes, as found in each step, and what may be expected of them."""

from collections.abc import Mapping
from dataclasses import replace

from koalapy.information.kis import Information, View
from koalapy.model.learned import Learned
from koalapy.model.settings import DYNAMIC, Scavenging
from koalapy.model.units import Instant
from koalapy.policies.idleness import IdlenessPolicy
from koalapy.scavenging.launchers import Launchers, place
from koalapy.scavenging.nodes import Nodes, look, node_size
from koalapy.scavenging.prediction import Prediction


class Ground:
    """`sizes`: processors of the largest node that each cluster has shown, or that a Launcher has there.

    `nodes`: what was found in this step. `news`: whether something was measured since the last. `learned`: by a former
    koalad, of clusters that the grid may have no more.
    """

    def __init__(
        self,
        information: Information,
        launchers: Launchers,
        policy: IdlenessPolicy,
        rules: Scavenging,
        learned: Learned,
    ) -> None:
        self.sizes: dict[str, int] = {}
        self.nodes: dict[str, Nodes] = {}
        self.news = False
        pasts = tuple(past for past in learned.pasts if past.cluster in information.clusters)
        self.prediction = Prediction(offsets=rules.offsets, learned=replace(learned, pasts=pasts))
        self._information, self._launchers = information, launchers
        self._policy, self._rules = policy, rules

    def measured(self, cluster: str) -> None:
        """What is found without any sweep is only to be learned from where something depends on it."""
        if self._launchers.sweeps or self._rules.admission == DYNAMIC:
            known = self._information.clusters[cluster]
            self.sizes[cluster] = node_size(known, self.sizes.get(cluster, 0))
            self.news = True

    def shown(self) -> dict[str, int]:
        """As `sizes`, with what clusters show now, which is not taken down while there are no sweeps."""
        return {name: node_size(known, self.sizes.get(name, 0)) for name, known in self._information.clusters.items()}

    def survey(self, now: Instant) -> None:
        views = {view.name: view for view in self._information.views(now)}
        self.nodes = {name: self._look(now, name, views[name]) for name in self._information.clusters}
        if self.news:
            self._learn(now)

    @property
    def idle(self) -> Mapping[str, int]:
        """Nodes that could be had now."""
        return {name: len(each.idle) for name, each in self.nodes.items()}

    def predicted(self, now: Instant) -> float:
        """Nodes that sweeps may expect to have, grid-wide; before anything was learned those that they may have now."""
        return self.prediction.forecast(now) or float(sum(each.allowed for each in self.nodes.values()))

    def _look(self, now: Instant, name: str, view: View) -> Nodes:
        known, there = self._information.clusters[name], self._launchers.on(name)
        sizes = [node_size(known, self.sizes.get(name, 0)), *(place(each).processors for each in there)]
        size = self.sizes[name] = max(sizes)
        return look(now, known, view, self._information.promises, len(there), size, self._policy, self._rules)

    def _learn(self, now: Instant) -> None:
        self.news = False
        for name, each in self.nodes.items():
            self.prediction.observe(now, name, each.allowed if name in self._information.reachable else 0)
