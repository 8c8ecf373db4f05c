"""The entry point of `koala`. Until a command is loaded, Ctrl-C ends it without a message."""

import signal


def main() -> None:
    """Run the command line. An interrupt during its imports, which take a while, would print a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from koalapy.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
