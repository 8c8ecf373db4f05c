"""The part of DRMAA that is Grid Engine's own: the paths of its library, its name, and the options that it requires."""

from typing import Mapping, Sequence

# A pattern each. Clusters install below $SGE_ROOT, Debian and Fedora at these.
_PACKAGED = (
    "/usr/lib/gridengine-drmaa/lib/libdrmaa.so.1.0",
    "/usr/lib64/gridengine-drmaa/lib/libdrmaa.so.1.0",
    "/usr/lib/*/libdrmaa.so.1.0",
    "/usr/lib64/libdrmaa.so.1.0",
)

# drmaa_get_DRM_system(3) returns such as `SGE 8.1.9`; libraries of other batch systems lie in the same places.
FAMILY = r"\b([A-Z]*GE|[A-Z]*GE/[\w.]+|[OG]CS|Grid Engine)\b"

# qsub(1): without -b n the library takes what it submits for a program, and reads no options in it.
OPTIONS: Sequence[str] = ("-b", "n")
# Options of qsub that mean nothing to the library, or that it has above.
OF_COMMANDS: Sequence[str] = ("-terse", "-b", "n", "-sync", "n", "-now", "n")


def libraries(environment: Mapping[str, str]) -> Sequence[str]:
    """Patterns of the library's paths, the most likely first."""
    root = environment.get("SGE_ROOT")
    return [*([root + "/lib/*/libdrmaa.so*"] if root else []), *_PACKAGED]
