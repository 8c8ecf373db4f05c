"""The grid as koalad knows it now: the values of its grid file, and the clusters that were added by command."""

from koalapy.config import GridFile


class CurrentGrid:
    """A holder of the present values, which any thread may read. `file` is replaced as a whole, and never changed."""

    def __init__(self, file: GridFile) -> None:
        self.file = file
