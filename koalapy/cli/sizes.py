"""Sizes as a person says them."""

_UNITS = ("B", "KB", "MB", "GB", "TB")


def in_bytes(size: float) -> str:
    """Three digits and a decimal unit."""
    power = 0
    while size >= 1000 and power < len(_UNITS) - 1:
        size, power = size / 1000, power + 1
    return f"{size:.0f} {_UNITS[power]}" if not power or size >= 100 else f"{size:.3g} {_UNITS[power]}"
