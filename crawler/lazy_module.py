"""Libraries that most processes never use, imported when something of them is first used.

For those that a module uses in several functions; one that a single function uses is imported there.
"""

import importlib
from typing import Any


class LazyModule:
    """Has what the module has."""

    def __init__(self, name: str) -> None:
        self.__name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(importlib.import_module(self.__name), attribute)
        setattr(self, attribute, found)  # found without us from now on
        return found
