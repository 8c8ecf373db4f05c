"""Job languages: each module reads a text into the form of a job file, and is found by its registered name. No I/O."""

from koalapy.languages.parameters import sweep_request
from koalapy.languages.reading import Reader, from_mapping, language_of, read_job, read_notify

__all__ = ["Reader", "from_mapping", "language_of", "read_job", "read_notify", "sweep_request"]
