"""Start one part of the pushed file: `python3 FILE NAME ARG...`. Only the module of that part is imported."""

import sys

_PARTS = {
    "kcm": "koalapy_adapters.kcm",
    "wrapper": "koalapy_adapters.wrapper",
    "agent": "koalapy_adapters.wrapper.agent.node_agent",
    "inside": "koalapy_adapters.wrapper.program.inside",
    "unshare": "koalapy_adapters.isolation.unshare",
    "launcher": "koalapy_adapters.launcher",
    "rendezvous": "koalapy_adapters.rendezvous",
    "remote-start": "koalapy_adapters.remote_start",
    "allocation": "koalapy_adapters.allocation",
    "allocation-node": "koalapy_adapters.allocation.node",
    "drmaa-helper": "koalapy_adapters.drmaa_helper",
    "pbs-bridge": "koalapy_adapters.batch.pbs_bridge",
    "isolation": "koalapy_adapters.isolation.probe",
    "survey": "koalapy_adapters.examination.survey",
}
_USAGE = 2


def main(argv=None) -> int:  # type: ignore[no-untyped-def]  # typing came with 3.5: older ones must get to the sentence
    """Run the part that the first argument names, with the arguments after it.

    Returns its exit status; 2 for wrong usage.
    """
    if sys.version_info < (3, 6):
        version = "%d.%d.%d" % sys.version_info[:3]
        sys.stderr.write("%s is Python %s, but koalapy needs 3.6 or later.\n" % (sys.executable, version))
        return _USAGE
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] not in _PARTS:
        sys.stderr.write("Name one of these parts of koalapy: %s.\n" % ", ".join(sorted(_PARTS)))
        return _USAGE
    import importlib

    status = importlib.import_module(_PARTS[arguments[0]]).main(arguments[1:])
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
