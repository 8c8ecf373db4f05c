"""The isolation that a pilot asks for. Whoever opened the pilot sets it in the environment of its processes."""

from typing import Dict, List, Mapping, NamedTuple, Optional

NONE, AUTO, BWRAP, UNSHARE = "none", "auto", "bwrap", "unshare"
METHODS = (BWRAP, UNSHARE)  # those that `auto` tries, in this order

VARIABLE, VISIBLE = "KOALA_ALLOCATION_ISOLATION", "KOALA_ALLOCATION_VISIBLE"


class Isolation(NamedTuple):
    """`method`: one of METHODS, or `auto`. `visible`: directories that a program sees, beside the system's."""

    method: str
    visible: List[str] = []

    @property
    def methods(self) -> List[str]:
        """The methods that may be used, the best first."""
        return list(METHODS) if self.method == AUTO else [self.method]

    def variables(self) -> Dict[str, str]:
        """Return the environment from which `asked` reads these options."""
        return {VARIABLE: self.method, VISIBLE: ":".join(self.visible)}


def asked(environment: Mapping[str, str]) -> Optional[Isolation]:
    """Return the options that an environment has; None if programs are not to be isolated."""
    method = environment.get(VARIABLE, NONE)
    if method == NONE:
        return None
    return Isolation(method, [each for each in environment.get(VISIBLE, "").split(":") if each])
