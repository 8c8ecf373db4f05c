"""The error of the test grid."""

from koalapy.model.errors import ClusterError


class ContainersError(ClusterError):
    """The container engine, compose or a container did not do what was asked."""
