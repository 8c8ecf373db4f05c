"""What a sweep's numbers stand for, on this side: its files are where they were submitted from."""

from collections.abc import Callable

from koalapy_adapters.launcher.lines import Lines

from koalapy.languages.paths import landing
from koalapy.model.request import Request


def line_reader(request: Request) -> Callable[[str, int], bytes]:
    """As `koalapy_adapters.launcher.space` asks for lines. Raises ValueError where a file is not there any more."""
    lines = Lines(request.directory)
    names = {landing(name): name for name in request.stage_in}
    return lambda file, index: lines.read(names.get(file, file), index)
