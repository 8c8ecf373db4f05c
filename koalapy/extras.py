"""Optional parts of the package: the extra of koalapy that installs the libraries a command needs."""

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


def need_extra(extra: str, user: str) -> None:
    """Check that the libraries of an extra are installed. `user` begins the message, in the singular: "A replay".

    Raises RequestError that names the extra.
    """
    missing = [library for library in LIBRARIES[extra] if find_spec(library) is None]
    if missing:
        message = f"{user} needs koalapy's extra `{extra}`: {' and '.join(missing)} cannot be imported."
        raise RequestError("missing_extra", message, f"Install it: pip install 'koalapy[{extra}]'.")


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
