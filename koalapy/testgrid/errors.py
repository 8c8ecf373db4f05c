"""The error of the test grid."""

from koalapy.model.errors import ClusterError


class ContainersError(ClusterError):
    """A failure of the container engine, of compose, or of a command in a container."""
