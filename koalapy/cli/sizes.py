"""Sizes in bytes as text."""

_UNITS = ("B", "KB", "MB", "GB", "TB")


def in_bytes(size: float) -> str:
    """Format a size with three digits and a decimal unit."""
    power = 0
    while size >= 1000 and power < len(_UNITS) - 1:
        size, power = size / 1000, power + 1
    return f"{size:.0f} {_UNITS[power]}" if not power or size >= 100 else f"{size:.3g} {_UNITS[power]}"
