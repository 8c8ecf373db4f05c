"""The ways in which a batch job is submitted: by DRMAA, by the batch system's API, else by its command."""

from typing import Callable, List, Optional, Union

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import BatchError, Result, TransientError
from koalapy_adapters.kcm.execution.drmaa.client import DrmaaClient
from koalapy_adapters.kcm.execution.drmaa.process import DrmaaLost, DrmaaRefused
from koalapy_adapters.kcm.execution.drmaa.sessions import DrmaaSessions
from koalapy_adapters.kcm.execution.slurm_api.process import SubmitterLost
from koalapy_adapters.kcm.execution.slurm_api.submitter import Submitter
from koalapy_adapters.kcm.execution.subprocess_runner import Handle


class SubmitDoubt(Exception):
    """The submit did not clearly fail: a batch job may exist. `error` says what is known."""

    def __init__(self, error: BatchError) -> None:
        super().__init__(error.message)
        self.error = error


class SubmitMethods:
    """The first that there is takes a job, and what comes of it is told as the submit command would have said it.

    `command` runs that command, and judges nothing.
    """

    def __init__(
        self,
        drmaa: Optional[Union[DrmaaClient, DrmaaSessions]],
        submitter: Optional[Submitter],
        command: Callable[[List[str], Handle], Result],
    ) -> None:
        self._drmaa, self._submitter, self._command = drmaa, submitter, command

    def submit(self, argv: List[str], job: BatchJob, path: str, handle: Handle) -> Result:
        """`argv` submits the script at `path`. Without an exit status it was ended.

        Raises SubmitDoubt where a batch job may exist, ClusterError where a way is required and cannot be gone.
        """
        result = self._by_drmaa(argv, path, handle) or self._by_api(job, path, handle)
        return result or self._command(argv, handle)

    def _by_drmaa(self, argv: List[str], path: str, handle: Handle) -> Optional[Result]:
        """None: there is no DRMAA. libdrmaa has the command's words for what it refuses."""
        if self._drmaa is None or not self._drmaa.start():
            return None
        if not handle.begin():
            return Result(argv, None, "", "")
        try:
            return Result(argv, 0, self._drmaa.submit(path, argv[1:]) + "\n", "")
        except DrmaaRefused as error:
            return Result(argv, 1, "", str(error))
        except DrmaaLost as error:
            advice = "Submit it again; if this goes on, set `drmaa: off` for this cluster in the grid file."
            raise SubmitDoubt(TransientError("drmaa_lost", str(error), advice)) from error

    def _by_api(self, job: BatchJob, path: str, handle: Handle) -> Optional[Result]:
        """None: the command has to do it, which may be since it has better words for a refusal."""
        try:
            batch_id = self._submitter and self._submitter.submit(job, path, handle.begin)
        except SubmitterLost as error:
            advice = "Submit it again; if this goes on, set `slurm_api: off` for this cluster in the grid file."
            raise SubmitDoubt(TransientError("slurm_api_lost", str(error), advice)) from error
        return Result(["submit_batch_job", path], 0, batch_id + "\n", "") if batch_id else None
