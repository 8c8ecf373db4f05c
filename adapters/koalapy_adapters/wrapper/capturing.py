"""The login shell that makes the program's environment, beside all else that a loop waits for."""

import selectors
import signal
from typing import Dict, List, Optional

from koalapy_adapters.wrapper import descendants
from koalapy_adapters.wrapper.environment import Capture


class Capturing:
    """Of one capture at most. `pids`: the shell's, until `finish`."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._capture: Optional[Capture] = None

    @property
    def pids(self) -> List[int]:
        return [self._capture.pid] if self._capture is not None else []

    def begin(self, capture: Capture) -> None:
        self._capture = capture
        for descriptor in (capture.environment, capture.words):
            self._selector.register(descriptor, selectors.EVENT_READ, capture.readable)

    def end(self) -> None:
        """Tell a login shell that still runs to end; its start-up files may hold locks, and get to let go of them."""
        for pid in self.pids:
            descendants.send([pid, *descendants.descendants(pid)], signal.SIGTERM)

    def finish(self, status: int) -> Dict[str, str]:
        """The environment, once the shell has ended with this status. Raises SetupError."""
        capture, self._capture = self._capture, None
        assert capture is not None
        self._selector.unregister(capture.environment)
        self._selector.unregister(capture.words)
        return capture.finish(status)
