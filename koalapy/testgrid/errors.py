"""What can go wrong with the test grid."""

from koalapy.model.errors import SiteError


class ContainersError(SiteError):
    """The container engine, compose or a container did not do what was asked."""
