"""How long to wait before the next try: exponential with jitter, so that those who failed together do not return so."""

import random
from collections.abc import Callable

import tenacity


class Backoff(tenacity.wait.wait_base):
    """From `first` seconds, doubled at each try, to `most`, which may depend on the error; up to a quarter less."""

    def __init__(self, first: float, most: Callable[[BaseException | None], float]) -> None:
        self._first, self._most = first, most

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        doubled = self._first * 2.0 ** min(retry_state.attempt_number - 1, 30)
        return min(doubled, self._most(error)) * random.uniform(0.75, 1.0)
