"""Where `koala` begins: a Ctrl-C ends it in silence, until a command is loaded that says more."""

import signal


def main() -> None:
    """Run the command line. What it imports takes a while, within which an interrupt would leave a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from koalapy.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
