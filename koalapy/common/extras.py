"""Optional parts of the package: the extra of koalapy that installs the libraries a command needs."""

import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from koalapy.model.errors import RequestError
from koalapy.model.request import Request

LIBRARIES = {
    "demo": ("numpy",),
    "docker": ("docker",),
    "experiments": ("matplotlib", "numpy"),
    "jdl": ("classad2",),
    "sites": ("cryptography", "OpenSSL"),
    "testgrid": ("cryptography", "docker"),
}
# By library: its distribution, and the oldest release that will do, as in pyproject.toml. pip keeps an older one that
# is installed already, unless the extra is asked for.
OLDEST = {"classad2": ("htcondor", (25, 14))}


def need_extra(extra: str, user: str) -> None:
    """Check that the libraries of an extra are installed, and not too old.

    `user` begins the message, in the singular: "A replay".
    Raises RequestError that names the extra.
    """
    missing = [library for library in LIBRARIES[extra] if find_spec(library) is None]
    if missing:
        message = f"{user} needs koalapy's extra `{extra}`: {' and '.join(missing)} cannot be imported."
        raise RequestError("missing_extra", message, f"Install it: pip install 'koalapy[{extra}]'.")
    for library in [each for each in LIBRARIES[extra] if each in OLDEST]:
        with suppress(PackageNotFoundError):  # installed by other means
            need_release(library, version(OLDEST[library][0]), extra, user)


def need_release(library: str, installed: str, extra: str, user: str) -> None:
    """Check that a library is not too old. `installed`: its version. `user` begins the message, as above.

    Raises RequestError that names the extra.
    """
    distribution, oldest = OLDEST[library]
    if _release(installed) < oldest:
        wanted = ".".join(map(str, oldest))
        message = f"{user} needs {distribution} {wanted} or later, for {library}: here is {installed}."
        raise RequestError("old_extra", message, f"Install it: pip install --upgrade 'koalapy[{extra}]'.")


def _release(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, which compare as versions do."""
    found = re.match(r"[0-9]+(\.[0-9]+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def need_matchmaker(request: Request) -> None:
    """Check that what evaluates requirements and ranks is installed, if a job that this site runs has such.

    Raises RequestError that names the extra.
    """
    if request.site is not None:
        return
    if any(each.requirements or each.rank for each in request.components):
        need_extra("jdl", "A job with requirements or a rank")
    for job in request.jobs:
        need_matchmaker(job.request)
