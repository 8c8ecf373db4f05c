"""Which language a job file is written in, by the ending of its name."""

DEFAULT_LANGUAGE = "yaml"
_LANGUAGES = {"yaml": "yaml", "yml": "yaml", "json": "yaml", "jsdl": "jsdl", "xml": "jsdl", "rsl": "rsl", "jdl": "jdl"}


def language_of(source: str) -> str:
    """The registered name of the language; YAML, of which JSON is a part, for any other ending and for none."""
    ending = source.rpartition("/")[2].rpartition(".")[2].casefold()
    return _LANGUAGES.get(ending, DEFAULT_LANGUAGE)


def stem_of(source: str) -> str:
    """The name of a file without folder and ending: `poisson` of `jobs/poisson.yaml`; "" if nothing is left."""
    name = source.rpartition("/")[2]
    return name.rpartition(".")[0] or name
