"""`crawler crawl`: crawls sites from seed URLs until nothing is left."""

import argparse
import contextlib
import sys
from typing import IO, TYPE_CHECKING

from crawler import process_tuning
from crawler.cli.check import check_app
from crawler.cli.crawl_options import (
    ALL_KEYS,
    check_instances,
    is_supervised,
)
from crawler.cli.options import settings_of
from crawler.cli.run_async import raise_file_limit, run_async
from crawler.crawl.terms import permitted
from crawler.crawl.url_input import form_of, sources_of
from crawler.rules.scope import ScopeRules
from crawler.settings import Settings

if TYPE_CHECKING:
    from crawler.outputs.target import Target


def run_crawl(arguments: argparse.Namespace) -> int:
    """Crawl; see EPILOG for the exit codes."""
    from crawler.cli.kept_outputs import results_alone

    with results_alone(arguments.output) as stdout:
        return _crawl(arguments, stdout)


def _crawl(arguments: argparse.Namespace, stdout: IO[bytes] | None) -> int:
    from crawler.cli.session import CrawlSession

    check_instances(arguments)
    settings = permitted(settings_of(arguments, ALL_KEYS, in_folder=True))
    _check_scope(settings)
    check_app(settings)
    targets = _targets(arguments, settings)
    plain, files = sources_of(arguments)
    form = form_of(arguments)
    _prepare_process()
    session = CrawlSession(arguments, settings, plain=plain, files=files, form=form, targets=targets, stdout=stdout)

    def work() -> int:
        with contextlib.suppress(BrokenPipeError):
            return run_async(session.run(), has_users_code=bool(settings.handlers.app))
        sys.stderr.close()
        return 0

    if not arguments.is_program or is_supervised(arguments):
        return work()
    from crawler.cli.supervising import run_restarting

    return run_restarting(work)


def _targets(arguments: argparse.Namespace, settings: Settings) -> "list[Target]":
    """As `checked_targets`."""
    if not arguments.output and not arguments.columns:
        return []
    from crawler.cli.export import checked_targets

    return checked_targets(arguments, settings.archive.dir, items=bool(settings.handlers.app))


def _prepare_process() -> None:
    raise_file_limit()
    process_tuning.keep_freed_memory()  # before there are threads: one that exists keeps its own arena


def _check_scope(settings: Settings) -> None:
    """Reports a bad regular expression before anything is created."""
    ScopeRules.of(settings.scope)
