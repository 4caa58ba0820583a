"""Settings: which source wins, and that every mistake is one line that names the key at fault."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.errors import UsageError
from crawler.rules.sites import complaints
from crawler.settings import PriorityRule, RetryKind, Settings, SiteSettings, load
from crawler.settings.internals import INTERNALS

SETTINGS_MAX = 114  # those of a kind of failure counted once, [[sites]] as one
UNSET = SiteSettings(match="*")
DOCUMENTED = Path(__file__).parent.parent / "config" / "crawler.toml"


def toml(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "own.toml"
    file.write_text(text, encoding="utf-8")
    return file


def plain(settings: Settings) -> Settings:
    """Without which keys were named."""
    return Settings(**{name: getattr(settings, name) for name in Settings.__struct_fields__})


def test_without_any_source_the_defaults_hold() -> None:
    assert plain(load(environment={})) == Settings()


def test_the_documented_file_says_what_the_defaults_are() -> None:
    assert plain(load(DOCUMENTED, environment={})) == Settings()


def test_the_documented_file_names_every_key_with_a_comment() -> None:
    commented: set[str] = set()
    section = ""
    for line in DOCUMENTED.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.partition("#")[0].strip(" []")
        elif "=" in line and not line.startswith("#"):
            value, _, comment = line.partition("  #") if "  #" in line else line.partition(" # ")
            assert comment.strip(), f"{section}: {line} has no comment"
            commented.add(f"{section}.{value.partition('=')[0].strip()}")
    known = {path for path, value in leaves(Settings()) if value is not None}
    assert commented == known - INTERNALS - {"sites"}


def test_the_documented_tables_by_site_are_valid_and_have_every_key(tmp_path: Path) -> None:
    shown = DOCUMENTED.read_text("utf-8").partition('Remove the "# " to use this example:\n#\n')[2]
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in shown.splitlines())
    sites = load(toml(tmp_path, text), environment={}).sites
    assert len(sites) == 2
    said = {key for site in sites for key in site.__struct_fields__ if getattr(site, key) != getattr(UNSET, key)}
    assert said == set(SiteSettings.__struct_fields__)


def leaves(record: msgspec.Struct, path: str = "") -> Iterator[tuple[str, object]]:
    """section.key and value; None where a table within a section adds nothing to it."""
    for key, value in msgspec.structs.asdict(record).items():
        if isinstance(value, msgspec.Struct):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


@pytest.mark.parametrize(
    ("environment", "options", "expected"),
    [
        ({}, {}, 2.0),
        ({"CRAWLER_POLITENESS_DELAY_S": "3"}, {}, 3.0),
        ({"CRAWLER_POLITENESS_DELAY_S": "3"}, {"politeness.delay_s": 4.0}, 4.0),
        ({"CRAWLER_POLITENESS_DELAY_S": "3"}, {"politeness.delay_s": None}, 3.0),
        ({}, {"politeness.delay_s": 4.0}, 4.0),
    ],
)
def test_options_win_over_environment_over_file(
    tmp_path: Path, environment: dict[str, str], options: dict[str, Any], expected: float
) -> None:
    file = toml(tmp_path, "[politeness]\ndelay_s = 2")
    settings = load(file, environment=environment, options=options)
    assert settings.politeness.delay_s == expected
    assert settings.politeness.delay_max_s == Settings().politeness.delay_max_s


def test_the_process_environment_counts_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAWLER_CRAWL_NAME", "from-environment")
    assert load().crawl.name == "from-environment"


def test_sources_add_up_within_a_section(tmp_path: Path) -> None:
    settings = load(
        toml(tmp_path, "[fetch]\nconcurrency = 5"),
        environment={"CRAWLER_FETCH_CONTACT": "https://example.org/bot"},
        options={"fetch.links_max": 9},
    )
    assert (settings.fetch.concurrency, settings.fetch.contact, settings.fetch.links_max) == (
        5,
        "https://example.org/bot",
        9,
    )


def test_a_table_within_a_section_is_reached_from_every_source_and_keeps_its_other_defaults(tmp_path: Path) -> None:
    settings = load(
        toml(tmp_path, "[retry.connect]\nattempts = 9"),
        environment={"CRAWLER_RETRY_CONNECT_BACKOFF_S": "7.5", "CRAWLER_RETRY_DNS_NOT_FOUND_ATTEMPTS": "3"},
        options={"retry.timeout.backoff_s": 4.0},
    )
    retry, defaults = settings.retry, Settings().retry
    assert (retry.connect.attempts, retry.connect.backoff_s) == (9, 7.5)
    assert retry.timeout.attempts == defaults.timeout.attempts
    assert (retry.dns_not_found.attempts, retry.timeout.backoff_s) == (3, 4.0)
    assert retry.server_busy == defaults.server_busy


def test_environment_texts_become_the_type_of_their_key() -> None:
    settings = load(
        environment={
            "CRAWLER_FETCH_ALLOW_PRIVATE": "Yes",
            "CRAWLER_ROBOTS_OBEY": "0",
            "CRAWLER_FETCH_CONCURRENCY": "7",
            "CRAWLER_DNS_NAMESERVERS": "127.0.0.1:5353, ::1,",
            "CRAWLER_SCOPE_MODE": "any",
            "CRAWLER_FRONTIER_ORDER": "freshness",
            "CRAWLER_FRONTIER_RULES": "[{match = '/a,b/', add = 2}, {match = '=', add = -0.5}]",
            "CRAWLER_CONFIG": "is not a setting",
            "PATH": "/bin",
        }
    )
    assert settings.fetch.allow_private is True
    assert settings.robots.obey is False
    assert settings.fetch.concurrency == 7
    assert settings.dns.nameservers == ("127.0.0.1:5353", "::1")
    assert settings.scope.mode == "any"
    assert settings.frontier.order == "freshness"
    assert settings.frontier.rules == (PriorityRule(match="/a,b/", add=2.0), PriorityRule(match="=", add=-0.5))


def test_the_settings_that_the_page_on_order_shows_are_valid(tmp_path: Path) -> None:
    shown = (DOCUMENTED.parent.parent / "docs" / "guide" / "order.md").read_text("utf-8").partition("```toml\n")[2]
    settings = load(toml(tmp_path, shown.partition("```")[0]), environment={})
    assert len(settings.frontier.rules) == 3


def test_rules_of_priority_are_tables_of_a_file(tmp_path: Path) -> None:
    text = "[frontier]\norder = 'priority'\n[[frontier.rules]]\nmatch = '/a/'\nadd = 2\n"
    text += "[[frontier.rules]]\nmatch = '/b/'\nadd = -1\n"
    settings = load(toml(tmp_path, text), environment={})
    assert settings.frontier.rules == (PriorityRule(match="/a/", add=2.0), PriorityRule(match="/b/", add=-1.0))


RULES = "[frontier]\norder = 'priority'\n[[frontier.rules]]\n"
SITE = "[[sites]]\nmatch = 'a.test'\n"
BAD_FILES = [
    ("[fetch]\nconcurency = 3", ["unknown key fetch.concurency", "concurrency"]),
    ("[fecth]\nconcurrency = 3", ["unknown key fecth", "fetch"]),
    ("[fetch]\nconcurrency = 0", ["fetch.concurrency = 0", ">= 1"]),
    ("[fetch]\nconcurrency = 'many'", ["fetch.concurrency = 'many'", "an integer"]),
    ("[fetch]\nallow_private = 1", ["fetch.allow_private = 1", "true or false"]),
    ("fetch = 3", ["fetch = 3", "[section]"]),
    ("[scope]\nmode = 'site'", ["scope.mode = 'site'", "domain, host, prefix, any"]),
    ("[traps]\noff = ['path', 'calender']", ["traps.off[1] = 'calender'", "calendar, session"]),
    ("[scope]\ninclude = 'a'", ["scope.include = 'a'", "a list"]),
    ("[scope]\ninclude = ['a', 1]", ["scope.include[1] = 1", "a string"]),
    ("[crawl]\nname = 'a b'", ["crawl.name = 'a b'"]),
    ("[crawl]\npartitions = 20000", ["crawl.partitions = 20000", "16384"]),
    ("[politeness]\ndelay_s = -1", ["politeness.delay_s = -1"]),
    ("[politeness]\ndelay_s = nan", ["politeness.delay_s = nan"]),
    ("[frontier]\nhalf_life_s = inf", ["frontier.half_life_s = inf", "expected a number <="]),
    ("[frontier]\nhalf_life_s = -86400.0", ["frontier.half_life_s = -86400.0", ">= 60"]),
    ("[frontier]\norder = 'depth'", ["frontier.order = 'depth'", "breadth, priority, freshness"]),
    ("[frontier]\nqueue_by = 'ip'", ["frontier.queue_by = 'ip'", "domain, host"]),
    (f"{RULES}match = '('\nadd = 1", ["frontier.rules[0].match = '('", "not a regular expression"]),
    (f"{RULES}match = ''\nadd = 1", ["frontier.rules[0].match = ''", "length >= 1"]),
    (f"{RULES}match = 'a'\nadd = nan", ["frontier.rules[0].add = nan", ">= -100000"]),
    (f"{RULES}match = 'a'\nadd = 1e9", ["frontier.rules[0].add = 1000000000.0", "<= 100000"]),
    (f"{RULES}match = 'a'", ["frontier.rules[0]", "missing `add`"]),
    (f"{RULES}match = 'a'\nadds = 1", ["unknown key frontier.rules[0].adds", "known: add, match"]),
    ("[[frontier.rules]]\nmatch = 'a'\nadd = 1", ["frontier.rules needs frontier.order = priority or freshness"]),
    ("[frontier]\ndepth_weight = 0", ["frontier.depth_weight needs frontier.order = priority"]),
    ("[scope]\ndepth_max = 2\n[budget]\ndepth = 3", ["budget.depth = 3", "scope.depth_max = 2"]),
    ("[politeness]\ndelay_s = 90", ["politeness.delay_s = 90.0", "politeness.delay_max_s = 60.0"]),
    ("[membership]\ndead_s = 3.5", ["membership.dead_s = 3.5", "more than 3.5", "frontier.call_timeout_s = 2.0"]),
    ("[membership]\ndead_s = 0.5", ["membership.dead_s = 0.5", ">= 1"]),
    ('[fetch]\nuser_agent = "a\\r\\nX: y"', ["fetch.user_agent", "one line"]),
    ("[fetch]\nuser_agent = '{name}'", ["fetch.user_agent = '{name}'", "{contact}"]),
    ("[fetch]\naccept_language = 'é'", ["fetch.accept_language", "ASCII"]),
    ("[retry.conect]\nattempts = 1", ["unknown key retry.conect", "connect"]),
    ("[retry.connect]\ntries = 1", ["unknown key retry.connect.tries", "attempts"]),
    ("[retry.connect]\nattempts = 0", ["retry.connect.attempts = 0", ">= 1"]),
    ("[retry.connect]\nbackoff_s = inf", ["retry.connect.backoff_s = inf", "expected a number <="]),
    ("[retry]\nconnect = 3", ["retry.connect = 3", "[section]"]),
    (f"{SITE}delay_s = 0.5", ["sites[0].delay_s = 0.5 is below politeness.delay_s = 1.0"]),
    (f"{SITE}delay_s = inf", ["sites[0].delay_s = inf", "<= 86400"]),
    (f"{SITE}delay = 5", ["unknown key sites[0].delay", "delay_s"]),
    (f"{SITE}headers = {{'a b' = ''}}", ["sites[0].headers.'a b'", "name of a header"]),
    (f"{SITE}headers = {{Host = 'b'}}", ["sites[0].headers.Host can't be set"]),
    (f'{SITE}headers = {{X = "a\\r\\nY: b"}}', ["sites[0].headers.X", "on one line"]),
    (f"{SITE}headers = {{X = 'a', x = 'b'}}", ["sites[0].headers", "twice"]),
    (f"{SITE}auth = 'u:p'\nheaders = {{authorization = 'b'}}", ["sites[0].auth", "headers.Authorization"]),
    (f"{SITE}cookies = {{a = 'b; c=d'}}", ["sites[0].cookies.a", "semicolon"]),
    (f"{SITE}cookies = {{'a=' = 'b'}}", ["sites[0].cookies.'a='", "name of a cookie"]),
    (f"{SITE}auth = {{env = 'A', other = 'B'}}", ["unknown key sites[0].auth.other (known: env)"]),
    (f"{SITE}label = 'a b'", ["sites[0].label = 'a b'"]),
    (f"{SITE}depth_max = 256", ["sites[0].depth_max = 256", "<= 255"]),
    ("[[sites]]\ndelay_s = 5", ["sites[0]: missing `match`"]),
    ("[sites]\nmatch = 'a'", ["sites: expected tables that begin with [[sites]]"]),
    ("[fetch", ["not valid TOML"]),
]


@pytest.mark.parametrize(("text", "parts"), BAD_FILES, ids=[text.replace("\n", " ") for text, _ in BAD_FILES])
def test_a_mistake_in_a_file_is_one_line_naming_the_key(tmp_path: Path, text: str, parts: list[str]) -> None:
    assert_one_line(parts, file=toml(tmp_path, text), environment={})


@pytest.mark.parametrize(
    "text",
    ["auth = 'hush'", "auth = {env = 5, x = 'hush'}", "cookies = 'a=hush'", "cookies = {a = 'hush;'}",
     "headers = 'hush'", "headers = {a = 'hush\u00e9'}", "headers = {a = ['hush']}", "auth = 'hush'\nmatch = 5"],
)  # fmt: skip
def test_a_mistake_in_what_may_be_a_secret_does_not_say_its_value(tmp_path: Path, text: str) -> None:
    site = text if "match" in text else f"match = 'a.test'\n{text}"
    with pytest.raises(UsageError) as caught:
        load(toml(tmp_path, f"[[sites]]\n{site}"), environment={})
    assert "sites[0]" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "parts"),
    [
        ({"CRAWLER_SITES": "[]"}, ["CRAWLER_SITES", "[[sites]]"]),
        ({"CRAWLER_FETCH_SPEED": "9"}, ["CRAWLER_FETCH_SPEED", "unknown key fetch.speed"]),
        ({"CRAWLER_FETCH_CONCURRENCY": "x"}, ["CRAWLER_FETCH_CONCURRENCY='x'", "whole number"]),
        ({"CRAWLER_FETCH_CONCURRENCY": "0"}, ["fetch.concurrency = 0"]),
        ({"CRAWLER_FETCH_ALLOW_PRIVATE": "on"}, ["CRAWLER_FETCH_ALLOW_PRIVATE='on'", "yes or no"]),
        ({"CRAWLER_FETCH_GATEWAY": "localhost:80"}, ["fetch.gateway = 'localhost:80'", "an IP address and a port"]),
        ({"CRAWLER_FETCH_GATEWAY": "127.0.0.1"}, ["fetch.gateway = '127.0.0.1'", "an IP address and a port"]),
        ({"CRAWLER_RETRY_CONNECT_TRIES": "1"}, ["CRAWLER_RETRY_CONNECT_TRIES", "unknown key retry.connect.tries"]),
        ({"CRAWLER_RETRY_CONNECT": "1"}, ["CRAWLER_RETRY_CONNECT", "retry.connect is a table"]),
        ({"CRAWLER_RETRY_CONNECT_BACKOFF_S": "x"}, ["CRAWLER_RETRY_CONNECT_BACKOFF_S='x'", "number"]),
        ({"CRAWLER_POLITENESS_DELAY_S": "nan"}, ["politeness.delay_s = nan"]),
        ({"CRAWLER_FRONTIER_RULES": "/news/=2"}, ["CRAWLER_FRONTIER_RULES='/news/=2'", "[{match ="]),
        ({"CRAWLER_FRONTIER_RULES": "['/news/']"}, ["frontier.rules[0] = '/news/'", "a [section]"]),
    ],
)
def test_a_mistake_in_the_environment_is_one_line_naming_the_key(environment: dict[str, str], parts: list[str]) -> None:
    assert_one_line(parts, environment=environment)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"fetch.speed": 9}, ["unknown key fetch.speed"]),
        ({"speed.fetch": 9}, ["unknown key speed"]),
        ({"fetch.concurrency": "9"}, ["fetch.concurrency = '9'", "an integer"]),
    ],
)
def test_a_mistake_in_an_option_is_one_line_naming_the_key(options: dict[str, Any], parts: list[str]) -> None:
    assert_one_line(parts, environment={}, options=options)


def test_a_file_that_can_not_be_read_is_one_line_naming_it(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    for file in (tmp_path / "absent.toml", tmp_path, binary):
        assert_one_line([str(file)], file=file, environment={})


def assert_one_line(parts: list[str], **sources: Any) -> None:
    with pytest.raises(UsageError) as caught:
        load(**sources)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_the_tables_that_the_page_on_settings_by_site_shows_are_valid(tmp_path: Path) -> None:
    page = DOCUMENTED.parent.parent / "docs" / "guide" / "settings-by-site.md"
    shown = page.read_text("utf-8").partition("```toml\n")[2]
    settings = load(toml(tmp_path, shown.partition("```")[0]), environment={})
    assert len(settings.sites) == 4
    assert list(complaints(settings)) == []


def test_a_claim_is_not_delivered_again_within_twice_the_time_of_a_fetch() -> None:
    def visibility_s(total_s: float) -> float:
        return load(environment={}, options={"fetch.total_timeout_s": total_s}).frontier.visibility_timeout_s

    assert (visibility_s(60.0), visibility_s(150.0), visibility_s(200.0)) == (300.0, 300.0, 400.0)


# --- what only tests set ---


@pytest.mark.parametrize("key", sorted(INTERNALS))
def test_an_internal_is_taken_below_internals_only(tmp_path: Path, key: str) -> None:
    section, name = key.split(".")
    value = getattr(getattr(Settings(), section), name) + 1
    variable = f"CRAWLER_{key}".upper().replace(".", "_")
    file = toml(tmp_path, f"[internals.{section}]\n{name} = {value}")
    for sources in (
        {"file": file, "environment": {}},
        {"environment": {variable.replace("CRAWLER_", "CRAWLER_INTERNALS_"): str(value)}},
        {"environment": {}, "options": {f"internals.{key}": value}},
    ):
        assert getattr(getattr(load(**sources), section), name) == value  # type: ignore[arg-type]
    assert_one_line([key], file=toml(tmp_path, f"[{section}]\n{name} = {value}"), environment={})
    assert_one_line([variable, key], environment={variable: str(value)})
    assert_one_line([key], environment={}, options={key: value})


@pytest.mark.parametrize(
    "text", ["internals = 1", "[internals]\nhosts = 1", "[internals.fetch]\nconcurrency = 1", "[internals.x]\ny = 1"]
)
def test_nothing_else_is_taken_as_an_internal(tmp_path: Path, text: str) -> None:
    assert_one_line(["internals.", "not internals of the crawler"], file=toml(tmp_path, text), environment={})


@pytest.mark.parametrize("name", ["FETCH_CONCURRENCY", "X_Y", "SITES_MATCH", "X", ""])
def test_nothing_else_is_taken_as_an_internal_from_the_environment(name: str) -> None:
    assert_one_line([f"CRAWLER_INTERNALS_{name}"], environment={f"CRAWLER_INTERNALS_{name}": "1"})


def test_there_are_not_more_settings_than_users_ask_for() -> None:
    """Before this grows: who sets the new key, on which symptom, to what? Without an answer it is a constant."""
    kinds = {key for key, value in msgspec.structs.asdict(Settings().retry).items() if isinstance(value, RetryKind)}
    settings = {re.sub(rf"^retry\.({'|'.join(kinds)})\.", "retry.KIND.", path) for path, _ in leaves(Settings())}
    assert len(settings - INTERNALS) <= SETTINGS_MAX


def test_internals_are_fields_of_settings() -> None:
    assert {path for path, _ in leaves(Settings())} >= INTERNALS
