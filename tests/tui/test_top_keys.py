"""What the keys of `crawler top` show and do, over fixed values."""

import asyncio

import pytest
from textual.pilot import Pilot

from crawler.rules.text import one_line
from crawler.tui.app import TopApp
from crawler.views.snapshot import DomainRows, Snapshot
from tests.tui.tui_lab import DOMAINS, NEVER_S, FixedSource, app_of, busy, screen_text

SIZE = (80, 24)


async def settled(pilot: Pilot[None]) -> str:
    """The screen once all that was pressed is handled."""
    for _ in range(3):
        await pilot.pause()
    return screen_text(pilot.app)


async def test_headline_and_table_are_of_one_read() -> None:
    source = FixedSource()
    async with app_of(source).run_test(size=SIZE) as pilot:
        text = await settled(pilot)
        assert "main: running   41,203 pages   98/s   112,281 queued   64 in flight" in text
        assert "500 domains" in text
        assert "docs.example" in text.splitlines()[5]
        assert {one for one in source.asked if one[0] == "snapshot"} == {("snapshot", "pages", 24)}
        assert not any(one[0] == "overview" for one in source.asked)


async def test_domains_that_are_stopped_are_marked_by_a_word() -> None:
    async with app_of(FixedSource()).run_test(size=SIZE) as pilot:
        lines = (await settled(pilot)).splitlines()
    ends = {line.split()[0]: line.split()[-1] for line in lines if ".example" in line}
    assert (ends["news.example"], ends["shop.example"], ends["wiki.example"]) == ("paused", "blocked", "budget")
    assert ends["docs.example"] == "s"


@pytest.mark.parametrize(
    ("key", "sort"),
    [("1", "pages"), ("2", "rate"), ("3", "queue"), ("4", "errors"), ("5", "bytes"), ("6", "due"), ("s", "rate")],
)
async def test_digits_and_s_sort(key: str, sort: str) -> None:
    source = FixedSource()
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        await pilot.press(key)
        text = await settled(pilot)
        assert [one[1] for one in source.asked if one[0] == "snapshot"][-1] == sort
        if sort != "bytes":  # that column has no room here
            assert text.count("↓") == 1


async def test_names_come_page_by_page() -> None:
    source = FixedSource()
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        await pilot.press("n")
        first = await settled(pilot)
        await pilot.press("end", "pagedown")
        second = await settled(pilot)
        await pilot.press("up")
        again = await settled(pilot)
        await pilot.press("escape")
        table = await settled(pilot)
    names = sorted(d.domain for d in DOMAINS)
    pages = [one for one in source.asked if one[0] == "by_name"]
    rows = pages[0][2]
    assert [one[1] for one in pages] == ["", names[rows - 1], ""]
    assert (names[1] in first, names[rows] in first) == (True, False)
    assert (names[1] in second, names[rows] in second) == (False, True)
    assert again.splitlines()[5:-1] == first.splitlines()[5:-1]
    assert "pages↓" in table


async def test_a_part_of_a_name_finds_domains_until_escape() -> None:
    source = FixedSource()
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        await pilot.press("slash", *"SITE7", "enter")
        text = await settled(pilot)
        assert ("matching", "site7", 24) in source.asked
        assert [line.split()[0] for line in text.splitlines() if ".example " in line] == ["site7.example"]
        await pilot.press("escape")
        assert "docs.example" in await settled(pilot)


async def test_enter_and_commands_act_on_the_list_that_the_search_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    source, gate = FixedSource(), asyncio.Event()
    matching = source.matching

    async def slow(text: str, limit: int) -> DomainRows:
        await gate.wait()
        return await matching(text, limit)

    monkeypatch.setattr(source, "matching", slow)
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        await pilot.press("slash", *"site7", "enter", "p")
        assert "Pause docs.example" not in await settled(pilot), "it is not what is searched for"
        await pilot.press("enter")
        await settled(pilot)
        assert not [one for one in source.asked if one[0] == "detail"]
        gate.set()
        await settled(pilot)
        await settled(pilot)
        assert {one[1] for one in source.asked if one[0] == "detail"} == {"site7.example"}


async def test_more_domains_are_read_when_the_cursor_comes_near_the_end() -> None:
    source = FixedSource([busy(f"site{n}.example", n % 50) for n in range(400)])
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        await pilot.press("end")
        await settled(pilot)
        await pilot.press("end")
        text = await settled(pilot)
    limits = list(dict.fromkeys(one[2] for one in source.asked if one[0] == "snapshot"))
    assert limits[0] == 24
    assert limits == sorted(limits)
    assert limits[1] > 100
    assert f"site{limits[1] - 1}.example" in text


async def test_the_cursor_stays_on_its_domain_when_the_order_changes() -> None:
    source = FixedSource(DOMAINS[:6])
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        await pilot.press("down")
        source.domains = DOMAINS[5::-1]
        pilot.app.poke()
        await settled(pilot)
        await pilot.press("enter")
        assert ("detail", "news.example") in source.asked or "news.example" in await settled(pilot)


async def test_enter_tells_why_a_domain_is_or_is_not_fetched() -> None:
    async with app_of(FixedSource()).run_test(size=(100, 40)) as pilot:
        await settled(pilot)
        await pilot.press("down", "enter")
        text = await settled(pilot)
        assert "Nothing is fetched: paused by an operator (continue with 'crawler resume news.example')." in text
        assert "12 beyond the budget of URLs" in text
        assert "pages/s, last 15 minutes, at most 7" in text
        await pilot.press("escape")
        assert "pages↓" in await settled(pilot)


Command = tuple[str, ...]


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("keys", "question", "command"),
    [
        (["p"], "Pause docs.example? No request to it starts until it is resumed", ("pause", "docs.example")),
        (["down", "p"], "Resume news.example?", ("resume", "news.example")),
        (["b"], "Block docs.example? 5,004 URLs are deferred", ("block", "docs.example")),
        (["down", "down", "b"], "Unblock shop.example?", ("unblock", "shop.example")),
        (["plus"], "Boost docs.example to 1? It is fetched before", ("boost", "docs.example", 1)),
        (["minus"], "Boost docs.example to -1? It is fetched after", ("boost", "docs.example", -1)),
        (["P"], "Pause the whole crawl?", ("pause", "")),
        (["d", "r"], "Retry 2 dead letters with the reason timeout?", ("retry", "", "timeout")),
        (["enter", "d", "down", "r"], "Retry 1 dead letter of docs.example with the reason tls?",
         ("retry", "docs.example", "tls")),
        (["d", "down", "down", "r"], "Retry 3 dead letters? The URLs return", ("retry", "", "")),
        (["enter", "p"], "Pause docs.example?", ("pause", "docs.example")),
    ],
)  # fmt: skip
async def test_a_change_asks_first_and_is_done_by_y_alone(keys: list[str], question: str, command: Command) -> None:
    source = FixedSource()
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        for key in keys:
            await pilot.press(key)
            text = await settled(pilot)
        assert question in " ".join(text.replace("│", " ").split())
        await pilot.press("n")
        await settled(pilot)
        assert source.commands == []
        await pilot.press(keys[-1], "y")
        await settled(pilot)
        assert source.commands == [command]


@pytest.mark.slow(ci=True)
async def test_the_delay_is_asked_for_and_a_bad_one_is_not_taken() -> None:
    source = FixedSource()
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        await pilot.press("D", "x", "enter")
        assert "not done: 'x' is not a valid duration (use 90, 10m, 2h, 1d)" in await settled(pilot)
        await pilot.press("D", "escape")
        await pilot.press("D", "5", "enter")
        assert "docs.example: 5" in await settled(pilot)
    assert source.commands == [("delay", "docs.example", "x"), ("delay", "docs.example", "5")]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("m", "vm-0  alive"),
        ("d", "https://docs.example/p3"),
        ("o", "bob  top  delay    a.test"),
        ("h", "https://docs.example/a"),
        ("question_mark", "Escape goes back"),
    ],
)
async def test_other_screens_open_and_close(key: str, shown: str) -> None:
    async with app_of(FixedSource()).run_test(size=(100, 45)) as pilot:
        await settled(pilot)
        await pilot.press(key)
        if shown not in await settled(pilot):
            await pilot.press("right")  # it is a long line
        assert shown in await settled(pilot)
        await pilot.press("escape")
        text = await settled(pilot)
        assert shown not in text
        assert "pages↓" in text


async def test_an_engine_that_is_away_is_a_line_and_the_numbers_stay() -> None:
    source = FixedSource()
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        source.down = True
        pilot.app.poke()
        text = await settled(pilot)
        assert "engine down: no answer from the engine: connection refused; trying again" in text
        assert "docs.example" in text
        await pilot.press("p", "y")
        assert "docs.example" in await settled(pilot)
        source.down = False
        pilot.app.poke()
        assert "engine down" not in await settled(pilot)


async def test_what_a_site_wrote_is_neither_markup_nor_moves_the_cursor() -> None:
    evil = "[bold red]x[/]\x1b[2J\u202e.example"
    error = "[link=http://a.test]a[/link]\x1b]0;t\x07"
    source = FixedSource([busy(evil, 1, last_error=error)], last_error=f"at {evil}")
    async with app_of(source).run_test(size=(200, 40)) as pilot:
        text = await settled(pilot)
        assert one_line(evil)[:20] in text
        assert f"last error: at {one_line(evil)}" in text
        assert one_line(error) in text
        await pilot.press("enter")
        assert one_line(evil) in await settled(pilot)
        assert not {"\x1b", "\u202e", "\x07"} & set(await settled(pilot))


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (80, 24), (120, 30), (300, 100)])
async def test_any_size_shows_the_first_domain(size: tuple[int, int]) -> None:
    async with app_of(FixedSource()).run_test(size=size) as pilot:
        text = await settled(pilot)
        assert max(map(len, text.splitlines())) <= size[0]
        assert "docs.example" in text or size[1] < 6


async def test_q_quits_with_0() -> None:
    app = app_of(FixedSource())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("q")
    assert (app.return_code, app.bug) == (0, None)


async def test_a_slow_read_is_not_waited_for_when_another_screen_opens() -> None:
    class Slow(FixedSource):
        async def letters(self, domain: str):
            self._note("letters", domain)
            await asyncio.Event().wait()

    source = Slow()
    async with app_of(source).run_test(size=SIZE) as pilot:
        await settled(pilot)
        await pilot.press("d")
        await settled(pilot)
        source.asked.clear()
        await pilot.press("escape")
        await settled(pilot)
        assert ("snapshot", "pages", 24) in source.asked


async def test_a_slow_engine_is_read_less_often() -> None:
    now = 0.0

    class Slow(FixedSource):
        async def snapshot(self, sort: str, limit: int) -> Snapshot:
            nonlocal now
            now += 0.5
            return await super().snapshot(sort, limit)

    pauses: list[float] = []

    class Timed(TopApp):
        async def wait(self, seconds: float) -> None:
            pauses.append(seconds)
            await super().wait(NEVER_S)

    async with Timed(Slow(), clock=lambda: now).run_test(size=SIZE) as pilot:
        await settled(pilot)
        await pilot.press("m")
        await settled(pilot)
    assert (pauses[0], pauses[-1]) == (5.0, 1.0)
