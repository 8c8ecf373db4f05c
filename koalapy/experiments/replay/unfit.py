"""A job of a trace that cannot be replayed."""


class Unfit(ValueError):
    """The reason why a job is not replayed, as the end of a sentence that begins with its line.

    `kind`: the category in which such jobs are counted. `common`: the job is no error of the trace, for example one
    that was cancelled before it ran.
    """

    def __init__(self, what: str, kind: str, advice: str = "", common: bool = False) -> None:
        super().__init__(what)
        self.kind, self.advice, self.common = kind, advice, common
