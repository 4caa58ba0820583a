"""Headers, cookies and credentials that [[sites]] add to the requests of matching URLs, and of no others.

Values may come from the environment. Secrets are replaced by a mark in the archived request.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from crawler.errors import UsageError
from crawler.rules.scope import SiteRules, SiteTable, is_secret_header
from crawler.settings import FromEnvironment, SiteSettings
from crawler.settings.validate_sites import fault_of

KEPT_OUT = "(not archived)"


class Additions(msgspec.Struct):
    """Additions for one URL: headers by lower-case name, as (name as written, value), and cookies."""

    headers: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    cookies: dict[str, str] = msgspec.field(default_factory=dict)
    secrets: set[str] = msgspec.field(default_factory=set)  # lower-case names of headers

    def header(self, name: str, value: str, *, is_secret: bool) -> None:
        """Add a header, unless an earlier table set it."""
        if name.lower() not in self.headers:
            self.headers[name.lower()] = name, value
            if is_secret:
                self.secrets.add(name.lower())


class SiteHeaders:
    """Additions by URL. Build with `of`."""

    def __init__(self, rules: SiteRules, resolved: Mapping[int, "Resolved"]) -> None:
        self._rules = rules
        self._resolved = resolved
        self._made: dict[tuple[bool, tuple[int, ...]], Additions] = {}

    @classmethod
    def of(cls, sites: Sequence[SiteSettings], environment: Mapping[str, str]) -> "SiteHeaders | None":
        """None when no table adds anything. Raises UsageError, also for a variable that is not set."""
        rules = SiteRules.of(sites, "headers", "cookies", "auth")
        if rules is None:
            return None
        return cls(rules, {number: Resolved.of(number, site, environment) for number, site in enumerate(sites)})

    def additions(self, url: str) -> Additions | None:
        """The additions for a canonical URL, or None."""
        tables = self._rules.fitting(url)
        if not tables:
            return None
        key = url.startswith("https:"), tuple(table.number for table in tables)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._put_together(url, tables)
        return made

    def _put_together(self, url: str, tables: Sequence[SiteTable]) -> Additions:
        made = Additions()
        for table in tables:
            values, may_be_secret = self._resolved[table.number], table.sends_secrets_to(url)
            if values.auth and may_be_secret:
                coded = b64encode(values.auth.encode()).decode()
                made.header("Authorization", f"Basic {coded}", is_secret=True)
            for name, value in values.headers.items():
                is_secret = is_secret_header(name, table.site.headers[name])
                if may_be_secret or not is_secret:
                    made.header(name, value, is_secret=is_secret)
            if may_be_secret:
                made.cookies |= {name: value for name, value in values.cookies.items() if name not in made.cookies}
        if made.cookies:
            made.secrets.add("cookie")
        return made


class Resolved(msgspec.Struct, frozen=True):
    """The additions of one table, with the values of its variables."""

    headers: dict[str, str]
    cookies: dict[str, str]
    auth: str

    @classmethod
    def of(cls, number: int, site: SiteSettings, environment: Mapping[str, str]) -> "Resolved":
        """Raises UsageError: for a variable that is not set, or whose value can't be sent."""
        for complaint in unresolved(number, site, environment):
            raise UsageError(complaint)
        return cls(
            {name: _value(text, environment) for name, text in site.headers.items()},
            {name: _value(text, environment) for name, text in site.cookies.items()},
            _value(site.auth, environment),
        )


def unresolved(number: int, site: SiteSettings, environment: Mapping[str, str]) -> Iterator[str]:
    """Problems with the variables that a table names, one line each, without any values."""
    texts = {"auth": site.auth}
    texts |= {f"headers.{name}": text for name, text in site.headers.items()}
    texts |= {f"cookies.{name}": text for name, text in site.cookies.items()}
    for key, text in texts.items():
        if not isinstance(text, FromEnvironment):
            continue
        if text.env not in environment:
            yield f"sites[{number}].{key}: the environment has no variable {text.env}"
        elif wrong := fault_of(key, environment[text.env]):
            yield f"sites[{number}].{key}: the value of {text.env} {wrong}"


def _value(text: str | FromEnvironment, environment: Mapping[str, str]) -> str:
    return environment[text.env] if isinstance(text, FromEnvironment) else text
