"""The clusters that suit a component: those whose ads meet its requirements, the best rank first."""

from collections.abc import Mapping
from typing import Protocol

from koalapy.model.errors import Reason
from koalapy.model.request import ComponentRequest

Ranks = Mapping[str, float | None]  # by cluster, the best first; None if its rank is not a number, or not asked for


class Suitability(Protocol):
    """The knowledge of which clusters suit, at one instant."""

    def ranks(self, component: ComponentRequest) -> Ranks | None:
        """Return the suitable clusters; None if all of them are, since the component has neither requirements nor rank.

        A cluster that the component was not compared with yet is not suitable.
        """
        ...

    def is_settled(self, component: ComponentRequest) -> bool:
        """Return whether the component was compared with every cluster."""
        ...

    def why_not(self, component: ComponentRequest, cluster: str) -> Reason | None:
        """Return the reason why the cluster does not suit; None if it does."""
        ...

    def failure(self, component: ComponentRequest) -> Reason | None:
        """Return why the component can be compared with no cluster, ever; None otherwise."""
        ...


class EveryCluster:
    """The suitability of clusters whose ads do not matter: each suits."""

    def ranks(self, component: ComponentRequest) -> Ranks | None:
        return None

    def is_settled(self, component: ComponentRequest) -> bool:
        return True

    def why_not(self, component: ComponentRequest, cluster: str) -> Reason | None:
        return None

    def failure(self, component: ComponentRequest) -> Reason | None:
        return None


EVERY_CLUSTER = EveryCluster()
