"""How often news without a content are heeded: that something has ended, and nobody knows what."""

from typing import Optional

from koalapy_adapters.kcm.state.poll_schedule import SOON


class Debounce:
    """Heard at once, and once more after SOON however often it rang meanwhile: of a thousand ends few are news."""

    def __init__(self) -> None:
        self._quiet_until = 0
        self._rang = False  # and was not heard

    def ring(self, now: int) -> bool:
        """Whether it is heard now."""
        self._rang = now < self._quiet_until
        if not self._rang:
            self._quiet_until = now + SOON
        return not self._rang

    def due(self) -> Optional[int]:
        """When what was not heard is to be."""
        return self._quiet_until if self._rang else None
