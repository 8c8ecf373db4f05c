"""Locate the files that are not Python: `containers` and `configs`, in a checkout or in an installed wheel."""

from pathlib import Path

from koalapy.model.errors import OurError


def data_path(name: str) -> Path:
    """Return the directory `containers` or `configs`, or a path below one of them. Raises OurError if there is none.

    A checkout (editable install) has them beside the package, the wheel inside it, under `_data`.
    """
    package = Path(__file__).parent.parent
    for root in (package / "_data", package.parent):
        if (root / name).exists():
            return root / name
    raise OurError(
        "data_missing",
        f"koalapy's data '{name}' is not installed.",
        "Install koalapy from its wheel or from a checkout.",
    )
