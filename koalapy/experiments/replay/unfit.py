"""A job of a trace that cannot be replayed."""


class Unfit(ValueError):
    """Why, as the end of a sentence that begins with its line. `kind`: as such jobs are counted.

    `common`: nothing is wrong with the trace, as with jobs that were cancelled before they ran.
    """

    def __init__(self, what: str, kind: str, advice: str = "", common: bool = False) -> None:
        super().__init__(what)
        self.kind, self.advice, self.common = kind, advice, common
