"""Which release this is."""

from importlib.metadata import PackageNotFoundError, version

PACKAGE = "shardcrawl"


def program_version() -> str:
    """The installed version; "0" from a bare checkout."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "0"
