"""Values of fields that several answers have."""

from koalapy.model.units import Instant, format_instant


def optional_instant(instant: Instant | None) -> str | None:
    """Format an instant as RFC 3339 in UTC; None stays None."""
    return None if instant is None else format_instant(instant)
