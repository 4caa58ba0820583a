"""Small sites, page by page, for the tests of the trap rules."""

from collections.abc import Iterable
from uuid import UUID

from crawler.rules.trap_verdict import TrapRules
from crawler.rules.traps import NOTHING_LEARNED, TrapState
from crawler.settings import TrapSettings

TOKEN = "9f86d081884c7d659a2feaa0c55ad015"
HOME = "http://site.test/"
RULES = TrapRules(TrapSettings())


def learned(pages: Iterable[tuple[str, list[str]]], rules: TrapRules = RULES) -> TrapState:
    state = NOTHING_LEARNED
    for url, links in pages:
        state = rules.learn(state, url, links=links)
    return state


def steps(name: str, number: int) -> list[tuple[str, list[str]]]:
    """Pages of a trap, each of which leads one step further in; the first ones are not yet suspect."""
    forms = {
        "path": lambda n: HOME + "".join(f"s{k}/" for k in range(n)),
        "query": lambda n: HOME + "?" + "&".join(f"p{k}=1" for k in range(n)),
        "repeats": lambda n: HOME + "again/" * n,
        "hosts": lambda n: f"http://{'.'.join(f'h{k}' for k in range(n, 0, -1))}.site.test/",
        "long": lambda n: f"{HOME}?state={'x' * 64 * n}",
        "calendar": lambda n: f"{HOME}on/{2026 + n // 12}-{n % 12 + 1:02}",
    }
    form = forms[name]
    return [(form(n), [form(n + 1)]) for n in range(1, number)]


STEPPING = ("path", "query", "repeats", "hosts", "long", "calendar")


def shop(number: int, visitor: int) -> str:
    return f"{HOME}shop/{number}?ref={UUID(int=visitor + (1 << 120))}"


def visits(pages: int, rounds: int) -> list[tuple[str, list[str]]]:
    """Every page fetched in turn under the tokens of other pages; each gives a token of its own to all its links."""
    return [
        (shop(n, 1000 * r + n), [shop((n + k) % pages, 5_000_000 + 1000 * r + n) for k in range(12)])
        for r in range(rounds)
        for n in range(pages)
    ]
