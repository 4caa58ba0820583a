"""Who may use regular expressions: each module with its reason. Anything else reads a site's bytes with split and find.

Python's engine goes back over its input: an expression with two loops that may take the same character needs the square
of its length. What people write runs on RE2 (crawler/expressions.py).
"""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
BACKTRACKING = frozenset(("re", "regex", "fnmatch", "glob"))

# A module that reads what a site sends is in the table of tests/growth, too: its expressions are measured there.
ALLOWED = {
    "api/openapi.py": "our own routes",
    "archive/warc.py": "site: one class, or anchored with one loop",
    "archive/warc_web.py": "archives of others: one line of fixed form, and line ends",
    "archive/index.py": "site: one loop each",
    "crawl/url_input.py": "seeds as people type them",
    "content/charset.py": "site: possessive loops, within 64 KiB of a page; one class",
    "content/css_urls.py": "site: possessive loops whose characters exclude each other",
    "content/fingerprint.py": "site: one loop over one class, within 256 Ki characters",
    "content/form_owners.py": "site: possessive loops within a tag; fixed lengths",
    "content/json_text.py": "site: possessive loops whose characters exclude each other",
    "content/parse_cost.py": "site: possessive loops whose characters exclude each other",
    "content/requisites.py": "site: one class, or possessive loops whose characters exclude each other",
    "content/sitemap.py": "site: a loop can't reach over the next tag, or stays in one tag's attributes",
    "rules/url_list.py": "site: one class to the end of a line, or words of fixed form and bounded length",
    "crawl/imports.py": "names in another program's queues: a fixed length",
    "rules/url_table.py": "seed files: anchored, one loop on each side of a mark, or loops of bounded length",
    "engine/address.py": "the command line and settings: one class each, of bounded length",
    "engine/client.py": "the engine's words",
    "engine/cluster.py": "the engine's words",
    "engine/server.py": "the engine's words",
    "frontier/arguments.py": "our own scripts",
    "frontier/scripts.py": "our own scripts",
    "handlers/crawler.py": "labels in a user's program",
    "handlers/page.py": "what a handler follows: anchored, one loop",
    "content/markdown.py": "site: one character with what is next to it, of bounded length, or one loop",
    "outputs/markdown_files.py": "site: one class, or anchored",
    "outputs/target.py": "names of targets",
    "redaction.py": "messages: loops of bounded length",
    "rules/cookie_dates.py": "site: one class, or digits of bounded number",
    "rules/cookies.py": "site: one character",
    "rules/schedules.py": "the command line and API clients: at most 64 characters",
    "rules/requests.py": "handlers, and site: one class of bounded length, or anchored with one loop",
    "rules/text.py": "site: one character",
    "rules/urls.py": "site: loops end at & and at brackets, or three characters",
    "rules/robots_patterns.py": "site: one character or octet, or one at the end",
    "rules/trap_tokens.py": "site: fixed lengths, or one class of bounded length",
    "settings/proxies.py": "the command line and settings: two classes of bounded length",
    "settings/load.py": "our own settings file, and names of settings",
    "audit/requests.py": "access logs: loops whose characters exclude each other",
    "hosts/login.py": "passwords of settings: one class",
    "web/response.py": "site: one loop each, within a line or its first 64 bytes; or two characters",
    "rules/conditional.py": "site: one class, quoted",
    "rules/cron.py": "the command line and API clients: at most 64 characters",
    "rules/patterns.py": "site: patterns are globs, which become atomic groups",
    "rules/places.py": "site: loops end at & and at the ends of path segments",
    "rules/trap_dates.py": "site: fixed lengths, at most 128 characters, or one loop to the end",
    "rules/zones.py": "the command line and API clients: at most 64 characters",
    "views/shares.py": "the command line",
    "api/host_names.py": "a client's header: classes of bounded length",
    "api/idempotency.py": "a client's header: one class, of bounded length",
    "api/proxies.py": "a prefix: anchored, loops that end at a slash",
    "outputs/lines.py": "site: anchored, one loop",
    "settings/described.py": "our own settings file",
    "settings/site_checks.py": "settings: one class",
    "terminal/words.py": "names of nodes",
}


@cache
def imported_by(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


def test_only_the_modules_listed_here_use_an_engine_that_goes_back() -> None:
    package = ROOT / "crawler"
    users = {str(file.relative_to(package)) for file in package.rglob("*.py") if imported_by(file) & BACKTRACKING}
    assert users == set(ALLOWED), "say why its time is linear, and give it a row in tests/growth/targets.py"


def test_re2_has_one_door() -> None:
    package = ROOT / "crawler"
    users = {str(file.relative_to(package)) for file in package.rglob("*.py") if "re2" in imported_by(file)}
    assert users == {"expressions.py"}
