"""Modules of scripts/lab, which is no package: its programs find each other beside themselves."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

LAB = Path(__file__).parents[2] / "scripts" / "lab"


def lab_module(name: str) -> ModuleType:
    with mock.patch.object(sys, "path", [str(LAB), *sys.path]):
        return importlib.import_module(name)
