"""Makes docs/reference.md from the settings, the command line and the docstrings. A test compares both."""

import argparse
import ast
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import crawler
from crawler import testing
from crawler.cli.main import EXIT_CODES, parser
from crawler.frontier.states import BOOKS, MOVES, State
from crawler.settings.described import sections

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference.md"
SETTINGS = ROOT / "config" / "crawler.toml"
HEAD = """# Reference

Made by `scripts/make-reference` from the settings, the command line and the docstrings: change those, not this page.
For what belongs together see [commands](guide/commands.md), [handlers](guide/handlers.md),
[outputs](guide/outputs.md), [testing handlers](guide/testing-handlers.md) and [exit codes](operate/exit-codes.md).

- [Settings](#settings)
- [Commands](#commands)
- [Handlers](#handlers)
- [Tests](#tests)
- [Exit codes](#exit-codes)
"""
SETTINGS_INTRO = """These are the settings that users change. The others are in
[config/crawler.toml](../config/crawler.toml), each with a comment; so are `[retry.KIND]` and `[[sites]]`.

A setting is a key of a TOML file (`--config FILE`, or the file that `CRAWLER_CONFIG` names), a variable of the
environment (`CRAWLER_FETCH_CONCURRENCY`; lists are separated by commas), and an option (`--set fetch.concurrency=32`).
Options win over the environment, and the environment wins over the file. Times end in `_s` and are seconds. Sizes are
bytes.
"""
DOCUMENTED = {  # the keys of each section that a user would set
    "crawl": ("name", "partitions", "pages_max", "time_max_s"),
    "scope": ("mode", "include", "exclude", "depth_max", "redirected_seeds", "nofollow", "follow"),
    "politeness": (
        "delay_s",
        "delay_max_s",
        "adaptive",
        "concurrency_per_queue",
        "concurrency_per_address",
    ),
    "fetch": (
        "concurrency",
        "user_agent",
        "contact",
        "connect_timeout_s",
        "total_timeout_s",
        "body_bytes_max",
        "allow_private",
        "insecure_tls",
        "proxy",
        "accept_language",
    ),
    "robots": ("obey", "agent"),
    "dns": ("nameservers",),
    "retry": ("attempts", "backoff_s", "backoff_factor", "backoff_max_s"),
    "hosts": ("failures", "give_up_s"),
    "frontier": ("redis", "queue_by", "order", "half_life_s", "rules", "memory", "spill_folder"),
    "budget": ("urls", "pages", "bytes", "depth", "hosts", "crawl_urls", "crawl_pages", "crawl_bytes"),
    "traps": ("off",),
    "membership": ("node", "weight", "dead_s", "drain_timeout_s"),
    "archive": ("dir", "disk_free_bytes_min", "warc", "compression_level", "request_records"),
    "handlers": ("app", "threads", "processes"),
    "history": ("bytes_max",),
    "log": ("level", "file"),
}


def make() -> str:
    parts = [
        HEAD,
        "## Settings\n\n" + SETTINGS_INTRO,
        *settings_sections(SETTINGS.read_text("utf-8")),
        "## Commands\n",
        *commands(),
        "## Handlers\n\n`from crawler import Crawler`\n",
        *members_of(crawler.Crawler),
        "### Page\n\nWhat a handler is given.\n\n" + attributes_of(crawler.Page),
        *members_of(crawler.Page),
        "## Tests\n\n`from crawler.testing import ...`\n",
        *(described(name, getattr(testing, name)) for name in testing.__all__),
        "## Exit codes\n\n```text\n" + textwrap.dedent(EXIT_CODES).partition("\n")[2].rstrip() + "\n```",
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def settings_sections(text: str) -> Iterator[str]:
    """A table for each section that has documented keys, with the comments of the file of defaults."""
    for section in sections(text):
        documented = DOCUMENTED.get(section.name, ())
        rows = [
            f"| `{k.name}` | `{cell(k.default)}` | {cell(prose(k.about))} |"
            for k in section.keys
            if k.name in documented
        ]
        if rows:
            about = f"{section.about[0].upper()}{section.about[1:]}.\n\n" if section.about else ""
            yield f"### [{section.name}]\n\n{about}| key | default | |\n|---|---|---|\n" + "\n".join(rows)


def commands() -> Iterator[str]:
    """A table for each command; the options that most of them share come first, once."""
    rows = {name: list(option_rows(one)) for name, one in parser()[1].items()}
    counted = Counter(row for some in rows.values() for row in some)
    common = [row for row in counted if counted[row] > len(rows) / 2]
    yield "Most commands have these options:\n\n| | |\n|---|---|\n" + "\n".join(common)
    for name, one in parser()[1].items():
        own = "\n".join(row for row in option_rows(one, common) if row not in common)
        with_common = sum(row in common for row in rows[name])
        shared = "all" if with_common == len(common) else "some" if with_common else "none"
        about = prose(" ".join((one.description or "").split()))
        yield f"### crawler {name}\n\n{about}\n\n| besides {shared} of the common options | |\n|---|---|\n{own}"


def option_rows(one: argparse.ArgumentParser, left_out: Container[str] = ()) -> Iterator[str]:
    """A row for each option and action; `left_out`: rows that actions do not repeat."""
    formatter = one._get_formatter()
    for action in one._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            for choice, inner in action.choices.items():
                yield f"| `{choice}` | {cell(prose(' '.join((inner.description or '').split())))} |"
                own = (row for row in option_rows(inner, left_out) if row not in left_out)
                yield from (row.replace("| `", f"| `{choice} ", 1) for row in own)
            continue
        value = "" if action.nargs == 0 else shown_value(action)
        names = ", ".join(action.option_strings) or value
        said = " ".join(formatter._expand_help(action).split()) if action.help else ""
        shown = f"{names} {value}" if action.option_strings and value else names
        yield f"| `{cell(shown)}` | {cell(prose(said))} |"


def shown_value(action: argparse.Action) -> str:
    if action.metavar is not None:
        return str(action.metavar) if isinstance(action.metavar, str) else " ".join(action.metavar)
    return ", ".join(map(str, action.choices)) if action.choices else action.dest


def members_of(kind: type) -> Iterator[str]:
    """Its public methods and properties in source order, each with signature and docstring."""
    if kind.__init__.__doc__ or kind.__doc__:
        yield prose(inspect.getdoc(kind) or "")
    for name, member in vars(kind).items():
        if not name.startswith("_") and inspect.getdoc(member) and hasattr(member, "__get__"):
            yield described(f"{kind.__name__}.{name}", member)


def described(name: str, member: Any) -> str:
    signature = ""
    if callable(member):
        found = inspect.signature(member)
        bare = [p.replace(annotation=p.empty) for p in found.parameters.values() if p.name != "self"]
        signature = str(found.replace(parameters=bare, return_annotation=found.empty))
    return f"#### `{name}{signature}`\n\n{prose(inspect.getdoc(member) or '')}"


def attributes_of(kind: type) -> str:
    """What its constructor sets, with the comments on those lines."""
    lines, rows = inspect.getsource(kind.__init__).splitlines(), []
    tree = ast.parse(textwrap.dedent("\n".join(lines)))
    for node in ast.walk(tree):
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            comment = lines[node.lineno - 1].partition("# ")[2]
            rows.append(f"| `{target.attr}` | {cell(comment)} |")
    return "| | |\n|---|---|\n" + "\n".join(rows) + "\n"


def prose(text: str) -> str:
    """A docstring as text of a page, with what could be markup escaped."""
    return re.sub(r"(?<!`)([*<])(?![^`]*`)", r"\\\1", text)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# The picture of the states of a URL in the architecture page.

ARCHITECTURE = ROOT / "docs" / "internals" / "architecture.md"
_PICTURE = re.compile(r"(?<=<!-- from crawler/frontier/states.py -->\n).*?(?=<!-- end -->\n)", re.DOTALL)


def picture() -> str:
    """Each state with where its URLs are, and which script moves them where."""
    lines = ["```text"]
    for state in State:
        place = BOOKS[state].place if state in BOOKS else "not in the seen-set"
        lines.append(f"{state:<10} {place}")
        moves = [(to, scripts) for (of, to), scripts in MOVES.items() if of is state]
        lines += [f"    -> {to:<10} {', '.join(scripts)}" for to, scripts in moves]
    return "\n".join([*lines, "```", ""])


def with_picture(page: str) -> str:
    return _PICTURE.sub(lambda _: picture(), page)
