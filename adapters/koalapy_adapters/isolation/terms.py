"""The isolation that a pilot asks for. Whoever opened the pilot sets it in the environment of its processes."""

from typing import Dict, List, Mapping, NamedTuple, Optional

NONE, AUTO, BWRAP, UNSHARE = "none", "auto", "bwrap", "unshare"
MEANS = (BWRAP, UNSHARE)  # those that `auto` tries, in this order

VARIABLE, VISIBLE = "KOALA_ALLOCATION_ISOLATION", "KOALA_ALLOCATION_VISIBLE"


class Terms(NamedTuple):
    """`means`: one of MEANS, or `auto`. `visible`: directories that a program sees read-only, beside the system's."""

    means: str
    visible: List[str] = []

    @property
    def tried(self) -> List[str]:
        """The means that may be used, the best first."""
        return list(MEANS) if self.means == AUTO else [self.means]

    def variables(self) -> Dict[str, str]:
        """Return the environment from which `asked` reads these terms."""
        return {VARIABLE: self.means, VISIBLE: ":".join(self.visible)}


def asked(environment: Mapping[str, str]) -> Optional[Terms]:
    """Return the terms that an environment has; None if programs are not to be isolated."""
    means = environment.get(VARIABLE, NONE)
    if means == NONE:
        return None
    return Terms(means, [each for each in environment.get(VISIBLE, "").split(":") if each])
