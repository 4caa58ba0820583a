"""Loads the module that a user names, and finds the app in it. Every way in which this fails is one line.

    shop.py          a file; its folder comes first where it imports from
    shop.py:app      the same, by the name of the object
    shop:app         a module, looked for in the working folder first
    shop.web:app     one in a package

Without an object's name, the module must have exactly one app.
"""

import functools
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from crawler.errors import UsageError
from crawler.handlers.crawler import Crawler
from crawler.handlers.tasks import OURS, kind_of, one_line_of, text_of


@functools.cache
def load_app(target: str) -> Crawler:
    """The app that `target` names. Raises UsageError."""
    where, name = _parted(target)
    is_file = where.endswith(".py") or "/" in where
    module = _from_file(target, Path(where)) if is_file else _from_name(target, where)
    try:
        app = _object_in(target, where, name, module)
    except UsageError:
        raise
    except BaseException as error:  # what a module has put in its place
        raise _import_failed(target, error) from None
    if not app.handlers:
        raise UsageError(f"--app {target}: it has no handler: write one with @app.page(...)")
    return app


def _parted(target: str) -> tuple[str, str]:
    """(file or module, name of the object or "")."""
    where, colon, name = target.rpartition(":")
    if not colon:
        return target, ""
    if not (where and name.isidentifier()):
        raise UsageError(f"--app {target}: expected FILE.py, FILE.py:OBJECT or MODULE:OBJECT")
    return where, name


def _from_file(target: str, file: Path) -> ModuleType:
    if not file.is_file():
        hint = " (a module is named with dots)" if file.suffix != ".py" else ""
        raise UsageError(f"--app {target}: file {file} does not exist{hint}")
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = file.stem
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    assert spec is not None
    assert spec.loader is not None
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) != str(file.resolve()):
        name = f"_app_{name}"  # such a module is loaded already: it must not be put aside
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as an import does: dataclasses and typing look for it there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _import_failed(target, error) from None
    return module


def _from_name(target: str, name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"--app {target}: expected FILE.py, FILE.py:OBJECT or MODULE:OBJECT")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(f"--app {target}: module {error.name} does not exist in {here}") from None
        raise _import_failed(target, error) from None
    except BaseException as error:
        raise _import_failed(target, error) from None


def _import_failed(target: str, error: BaseException) -> BaseException:
    """One line with the place in the user's code where it went wrong."""
    if isinstance(error, KeyboardInterrupt):
        return error
    if isinstance(error, SyntaxError):
        said = text_of(lambda: f"{error.filename}:{error.lineno}: {kind_of(error)}: {error.msg}")
        return UsageError(f"--app {target} can't be imported: {one_line_of(said)}")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    place = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    kind = "" if isinstance(error, UsageError) else kind_of(error)
    said = one_line_of(text_of(lambda: str(error)))
    return UsageError(f"--app {target} can't be imported: {place}{': '.join(part for part in (kind, said) if part)}")


def _is_theirs(filename: str) -> bool:
    return not filename.startswith((OURS, "<frozen"))


def _is_app(value: object) -> TypeGuard[Crawler]:
    """By its class, not by its attributes."""
    return issubclass(type(value), Crawler)


def _object_in(target: str, where: str, name: str, module: ModuleType) -> Crawler:
    if name:
        found = getattr(module, name, None)
        if _is_app(found):
            return found
        what = f"{name} is a {type(found).__name__}, no Crawler" if hasattr(module, name) else f"it has no {name}"
        raise UsageError(f"--app {target}: {what}")
    apps = {id(value): (name, value) for name, value in vars(module).items() if _is_app(value)}
    if not apps:
        raise UsageError(f"--app {target}: it makes no Crawler: write app = Crawler()")
    if len(apps) > 1:
        names = " or ".join(f"{where}:{name}" for name, _ in apps.values())
        raise UsageError(f"--app {target}: it has several apps: use --app {names}")
    ((_, app),) = apps.values()
    return app
