"""Job languages: each module reads a text into the form of a job file, and is found by its registered name. No I/O."""

from koalapy.languages.endings import language_of
from koalapy.languages.native import from_mapping, read_notify
from koalapy.languages.reading import Reader, read_job
from koalapy.languages.sweep import sweep_request

__all__ = ["Reader", "from_mapping", "language_of", "read_job", "read_notify", "sweep_request"]
