"""Processors counted on the nodes of the simulated batch systems, independently of koalapy's own count."""

from collections.abc import Mapping

from koalapy.model.request import ComponentRequest
from koalapy.world.cluster.cluster import SimCluster


class Processors:
    """Counts the processors of a component as the batch system would allocate them on nodes that are all idle."""

    def __init__(self, clusters: Mapping[str, SimCluster]) -> None:
        self._clusters = clusters
        self._counted: dict[tuple[str, int, int | None], int] = {}

    def taken(self, cluster: str, component: ComponentRequest) -> int:
        """Return the processors that nobody else can use: with exclusive allocation, all of each node."""
        key = cluster, component.processors, component.processors_per_node
        if key not in self._counted:
            self._counted[key] = self._count(*key)
        return self._counted[key]

    def total(self, cluster: str) -> int:
        return sum(self._sizes(cluster))

    def nodes(self, cluster: str) -> int:
        return len(self._sizes(cluster))

    def _sizes(self, cluster: str) -> list[int]:
        return [node.processors for node in self._clusters[cluster].batch.nodes]

    def _count(self, cluster: str, processors: int, per_node: int | None) -> int:
        """Count node by node; demand beyond all nodes is counted on more nodes of the last one's size."""
        sizes, left, taken = iter(self._sizes(cluster)), processors, 0
        whole, size = self._clusters[cluster].batch.parameters.exclusive, self._sizes(cluster)[-1]
        while left > 0:
            size = next(sizes, size)
            part = min(left, size, per_node or size)
            taken += size if whole else part
            left -= part
        return taken
