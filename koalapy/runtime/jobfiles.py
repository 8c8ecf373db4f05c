"""Jobs' files for the API: taken down at submission, looked at on their way, fetched once more, read at home."""

from collections.abc import Callable
from dataclasses import dataclass

from koalapy.model.commands import CollectOutput
from koalapy.model.request import Request
from koalapy.runtime.collecting.bring import Home
from koalapy.runtime.collecting.written import WrittenStore
from koalapy.runtime.staging.transfers import Transfers


@dataclass(frozen=True, slots=True)
class JobFiles:
    """See Intake.take_down, and Collector.fetch. `written`: what jobs wrote, as far as it is at home."""

    take_down: Callable[[Request], Request]
    transfers: Transfers
    fetch: Callable[[CollectOutput, float], Home | None]
    written: WrittenStore
