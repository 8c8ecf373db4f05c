"""The components that no isolated program can be: those that need more of a node than the isolation shows them."""

from koalapy.model.errors import Reason
from koalapy.model.request import ComponentRequest, Launch, Request

Visible = tuple[str, ...]  # the directories that isolated programs see beside those of the system

SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # what every isolated program sees
MPI = "launch: mpi"
TERMINAL = Reason(
    "isolated", "request", "isolates programs, and an isolated program can have no terminal.",
    "Name another cluster, or let the job not be interactive.",
)  # fmt: skip


def beyond_isolation(component: ComponentRequest) -> str:
    """Return what the component needs beyond the isolation: MPI, or the path of its executable; "" for nothing."""
    if component.launch is Launch.MPI:
        return MPI
    path = component.executable
    return path if path.startswith("/") and not _is_below(path, SYSTEM) else ""


def why_not_isolated(needed: str, visible: Visible) -> Reason | None:
    """Return why a component that needs this cannot run isolated; None if it can."""
    if not needed or (needed != MPI and _is_below(needed, visible)):
        return None
    if needed == MPI:
        message = "isolates programs, and a component with `launch: mpi` cannot run isolated."
        return Reason("isolated", "request", message, "Name another cluster, or none.")
    message = f"isolates programs, and {needed} is not visible to them."
    return Reason("isolated", "request", message, "Stage it in, or make its directory `visible`.")


def needs_terminal(request: Request) -> bool:
    """Return whether the job's first process is to have a terminal, or what a person types."""
    return request.interactive is not None


def _is_below(path: str, directories: Visible) -> bool:
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in directories)
