"""The input files of jobs: recorded when a job is submitted, and brought to a cluster before each attempt."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from koalapy.model.commands import SubmitAttempt
from koalapy.model.errors import RequestError
from koalapy.model.request import Request
from koalapy.runtime.staging.gather import Entry, gather, size_of
from koalapy.runtime.staging.upload import Content, Uploads
from koalapy.runtime.staging.versions import Version, Versions
from koalapy.runtime.transfers import Transfer, Transfers

_IN_MESSAGE = 1 << 16  # bytes of a list that a Submit holds itself; a longer one is staged too


class InputFiles:
    """The input files of one koalad. `directory` keeps the versions of waiting jobs' files across restarts."""

    def __init__(self, directory: Path | None = None, transfers: Transfers | None = None) -> None:
        self.transfers = transfers or Transfers()
        self._versions = Versions(directory)

    def snapshot(self, request: Request) -> Request:
        """Return the request bound to the present versions of its files; of a flow, each of its jobs.

        A job that waits for others gets its files as they are when its turn comes: those others may make them.
        Raises RequestError for what cannot be staged.
        """
        if request.jobs and not request.after:
            jobs = [each if each.after else replace(each, request=self.snapshot(each.request)) for each in request.jobs]
            return replace(request, jobs=tuple(jobs))
        return replace(request, files=self._versions.keep(found)) if (found := look(request)) else request

    def upload(self, uploads: Uploads, command: SubmitAttempt, transfer: Transfer) -> "Uploaded":
        """Return when the cluster has all files of the attempt; see Uploads.upload. Raises KoalaError."""
        version = self._version(command, transfer)
        contents, staged = _contents(version)
        transfer.begin("sending", len(version.entries), sum(content.size for content in contents))
        uploads.upload(contents, size_of(version.entries), transfer)
        return Uploaded(version, staged)

    def _version(self, command: SubmitAttempt, transfer: Transfer) -> Version:
        entries = self._entries(command)
        transfer.begin("reading", len(entries), size_of(entries))

        def read(size: int) -> None:
            transfer.add(size)
            transfer.go_on()

        return self._versions.fix(command.files, entries, read)

    def _entries(self, command: SubmitAttempt) -> tuple[Entry, ...]:
        """Return the entries as they were submitted, or if those are not known any more, the present ones.

        Raises RequestError if the present ones differ from the submitted ones.
        """
        known = self._versions.entries(command.files)
        if known is not None:
            return known
        found = gather(command.directory, command.stage_in, [command.request.executable])
        if command.files and self._versions.keep(found) not in ("", command.files):
            message = "Files that are to be staged in have changed since the job was submitted."
            raise RequestError(
                "changed_file", message, "Submit the job again; leave its files alone until they are sent."
            )
        return found


def look(request: Request) -> tuple[Entry, ...]:
    """Return the entries that the request stages in at once. Raises RequestError for what cannot be staged."""
    if not request.after:
        for each in request.jobs:
            if not each.after:
                look(each.request)
    if not request.stage_in or request.after:
        return ()
    return gather(request.directory, request.stage_in, [component.executable for component in request.components])


class Uploaded:
    """The files of an attempt, as its Submit lists them, with their number, size in bytes, and version."""

    def __init__(self, version: Version, staged: list[list[Any]]) -> None:
        self.staged = staged
        self.files = sum(not entry.directory for entry in version.entries)
        self.size = size_of(version.entries)
        self.version = version.name


def _contents(version: Version) -> tuple[list[Content], list[list[Any]]]:
    """Return the contents to store on the cluster, and their list for Submit."""
    pairs = zip(version.entries, version.digests, strict=True)
    contents = {digest: Content(digest, entry.size, entry) for entry, digest in pairs if digest}
    listed = version.listed()
    data = json.dumps(listed).encode()
    if len(data) <= _IN_MESSAGE:
        return list(contents.values()), listed
    digest = hashlib.sha256(data).hexdigest()
    return [*contents.values(), Content(digest, len(data), data=data)], [["", digest, 0]]
