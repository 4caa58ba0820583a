"""Labelled pairs of pages: near-duplicates, or not. The table is `near_pairs.jsonl`; this makes its bodies.

**The rule of the labels**, written down before any code that finds near-duplicates: two pages are near if a reader of
the main text of one finds nothing new in that of the other. What may differ: navigation, banners, advertisements,
clocks, counters and comments around the text (at most a twentieth of its words), single words (a corrected typo, a
version number, a date: at most one in a hundred), the order of whole blocks, markup, blanks, charset and letter case.
Two pages are *not* near if at least a fifth of the words of one is not in the other (another chapter, entry, product,
page of a list; half of the text; a translation), even where template and phrases are the same; or if a text is too
short (below 24 words) to tell: nothing is near to it. Between a twentieth and a fifth people disagree: no pair is
labelled there.

Most pages are real HTML of Debian's documentation packages. `python -m tests.content.near_pairs` writes the table
again: which pages and which seeds, never a label that depends on what a fingerprint says.
"""

import html
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from scripts.bench_lib.corpus import ONE, SOURCES, Source

TABLE = Path(__file__).with_name("near_pairs.jsonl")
MANUAL = Source("apache.test", Path("/usr/share/doc/apache2-doc/manual"), "apache2-doc")
FOLDERS = {one.host.removesuffix(".test"): one.folder for one in (*SOURCES, *ONE, MANUAL)}
PARAGRAPH = re.compile(r"(<p[\s>](?:(?!<p[\s>]).)*?</p>)", re.DOTALL)
WORDS_MIN = 24


def pairs() -> Iterator[dict[str, Any]]:
    """The rows of the table: `kind`, `near`, `seed`, and `page` (with `other`) if they are made of real pages."""
    for line in TABLE.read_text("utf-8").splitlines():
        yield json.loads(line)


def is_there(pair: dict[str, Any]) -> bool:
    """Are the packages installed that have its pages?"""
    return all(_path(pair[name]).is_file() for name in ("page", "other") if name in pair)


def bodies(pair: dict[str, Any]) -> tuple[bytes, bytes]:
    """Both pages of a pair, UTF-8 unless it is about charsets."""
    rng = random.Random(f"{pair['kind']} {pair['seed']}")
    made = KINDS[pair["kind"]]
    if "page" not in pair:
        one, other = made(rng)
    elif "other" in pair:
        one, other = made(rng, _read(pair["page"]), _read(pair["other"]))
    else:
        one, other = made(rng, _read(pair["page"]))
    return tuple(part if isinstance(part, bytes) else part.encode("utf-8", "replace") for part in (one, other))  # type: ignore[return-value]


def _path(name: str) -> Path:
    folder, _, path = name.partition("/")
    return FOLDERS[folder] / path


def _read(name: str) -> str:
    data = _path(name).read_bytes()
    found = re.search(rb"charset=[\"']?([\w-]+)", data[:2000])
    text = data.decode(found.group(1).decode() if found else "utf-8", "replace")
    return re.sub(r"charset=[\"']?[\w-]+", 'charset="utf-8', text, count=1) if found and b'charset="' in data else text


# --- near: what is put around a text ---

ADS = (
    "Great offers on cloud servers this week only, with thirty days money back guarantee.",
    "Learn to code in ten weeks with our online bootcamp and get a certificate.",
    "Advertisement: the best shoes for runners, now with free delivery to your door.",
    "Sponsored: compare insurance in two minutes and save up to half of what you pay.",
)
NAV = ("Home", "News", "Sports", "Weather", "Shop", "Blog", "About us", "Contact", "Help", "Jobs", "Imprint", "Login")
AROUND = (  # in the templates of these manuals
    "script, style, nav, header, footer, [role=navigation], .sphinxsidebar, .related, .footer, .navheader, .navfooter, "
    "#page-header, #path, .toplang, .bottomlang, #footer, .navbar, .printfooter, .t-navbar, #footer-text"
)


def _clock(rng: random.Random, page: str) -> tuple[str, str]:
    def at(rng: random.Random) -> str:
        hour, minute, second = rng.randrange(24), rng.randrange(60), rng.randrange(60)
        return f"Sunday, {rng.randrange(1, 29)} November 2026, {hour:02}:{minute:02}:{second:02}"

    def on(page: str) -> str:
        return _in_body(page, f"<p>It is {at(rng)}.</p>", f"<p>Page made in 0.{rng.randrange(999)} s, {at(rng)}</p>")

    return on(page), on(page)


def _counter(rng: random.Random, page: str) -> tuple[str, str]:
    def on(page: str) -> str:
        many, likes = rng.randrange(10_000, 99_999), rng.randrange(1_000)
        return _in_body(
            page, f"<p>You are visitor {many}. {likes} people like this page.</p>", f"<p>{likes} shares</p>"
        )

    return on(page), on(page)


def _ads(rng: random.Random, page: str) -> tuple[str, str]:
    return page, _between(rng, page, [f"<p>{text}</p>" for text in rng.sample(ADS, _room(page))])


def _other_ads(rng: random.Random, page: str) -> tuple[str, str]:
    texts = rng.sample(ADS, 4)
    room = min(2, _room(page))
    return (
        _between(rng, page, [f"<p>{text}</p>" for text in texts[:room]]),
        _between(rng, page, [f"<p>{text}</p>" for text in texts[2 : 2 + room]]),
    )


def _navigation(rng: random.Random, page: str) -> tuple[str, str]:
    def menu() -> str:
        links = "".join(f'<li><a href="/{name}">{name}</a></li>' for name in rng.sample(NAV, 9))
        return f'<nav><ul class="menu">{links}</ul></nav>'

    footer = f"<footer><p>Copyright {rng.randrange(1999, 2027)}</p>{menu()}</footer>"
    return _in_body(page, menu(), ""), _in_body(page, menu(), footer)


def _banner(rng: random.Random, page: str) -> tuple[str, str]:
    text = "We use cookies to improve this site. Accept all, reject all, or read our policy."
    return page, _in_body(page, f'<div class="cookie-banner" role="dialog"><p>{text}</p></div>', "")


def _comment(rng: random.Random, page: str) -> tuple[str, str]:
    said = f"Thanks, this helped me a lot, greetings from reader {rng.randrange(1000)}!"
    return page, _in_body(page, "", f'<section class="comments"><h3>1 comment</h3><p>{said}</p></section>')


def _reordered(rng: random.Random, page: str) -> tuple[str, str]:
    """Three long runs of paragraphs in another order, as blocks of a page that is sorted by popularity."""
    parts = PARAGRAPH.split(page)
    texts = parts[1::2]
    third = len(texts) // 3
    runs = [texts[:third], texts[third : 2 * third], texts[2 * third :]]
    order = rng.choice([(1, 2, 0), (2, 0, 1), (1, 0, 2), (2, 1, 0)])
    moved = [text for number in order for text in runs[number]]
    return _simple("".join(texts)), _simple("".join(moved))


def _printed(rng: random.Random, page: str) -> tuple[str, str]:
    """The print version: what is around the text is gone, and there is a line on top."""
    tree = LexborHTMLParser(page)
    for node in tree.css(AROUND):
        node.decompose(recursive=True)
    inside = tree.body.html if tree.body else ""
    return page, f"<html><head><title>Print</title></head>{_in_body(inside or '', _printed_on(rng), '')}</html>"


def _printed_on(rng: random.Random) -> str:
    return f"<p>Printed on {rng.randrange(1, 29)} November 2026</p>"


def _respelt(rng: random.Random, page: str) -> tuple[str, str | bytes]:
    """A mirror: other blanks, upper-case tags, references in place of letters, another charset."""
    found = re.sub(r"</?[a-z]+", lambda one: one.group().upper(), page) if rng.random() < 0.5 else page
    found = re.sub(r"(?<=[a-z,.]) (?=[a-z])", lambda _: rng.choice((" ", " ", "\n   ", "  ")), found)
    charset = rng.choice(("utf-8", "utf-16"))
    return page, found if charset == "utf-8" else b"\xff\xfe" + found.encode("utf-16-le", "replace")


def _typos(rng: random.Random, page: str) -> tuple[str, str]:
    """One word in two hundred is another one, as after a round of corrections."""
    words = iter(lambda: rng.choice(("updated", "recent", "also", "corrected", "version")), "")
    return page, _other_words(rng, page, 0.005, lambda _: next(words))


def _next_version(rng: random.Random, page: str) -> tuple[str, str]:
    """The same page of the next release: the version everywhere, a date, one new paragraph in fifty."""
    one, other = f"4.{rng.randrange(9)}", f"5.{rng.randrange(9)}"

    def of(version: str) -> str:
        return _in_body(page, f"<h1>Manual of release {version}</h1>", f"<p>Version {version} of the manual</p>")

    parts = PARAGRAPH.split(of(other))
    for at in range(1, len(parts), 2):
        if rng.random() < 0.02 and len(_words(parts[at])) < len(_words(page)) // 40:
            parts[at] = f"<p>Since release {other} this behaves as documented elsewhere.</p>"
    return of(one), "".join(parts)


def _same(rng: random.Random, page: str) -> tuple[str, str]:
    return page, page


# --- not near ---


def _of_one_template(rng: random.Random, page: str, other: str) -> tuple[str, str]:
    return page, other


def _translated(rng: random.Random, page: str, other: str) -> tuple[str, str]:
    return page, other


def _other_content(rng: random.Random, page: str, other: str) -> tuple[str, str]:
    """The shell of the first page with a third of the paragraphs of the other: an old URL with much that is new."""
    parts, new = PARAGRAPH.split(page), [text for text in PARAGRAPH.split(other)[1::2] if len(_words(text)) > 4]
    wanted, changed = len(_words("".join(parts[1::2]))) * 0.35, 0
    for at in rng.sample(range(1, len(parts), 2), len(parts) // 2):
        if changed >= wanted:
            break
        changed += len(_words(parts[at]))
        parts[at] = rng.choice(new)
    return _simple("".join(PARAGRAPH.split(page)[1::2])), _simple("".join(parts[1::2]))


def _half(rng: random.Random, page: str) -> tuple[str, str]:
    texts = PARAGRAPH.split(page)[1::2]
    return _simple("".join(texts)), _simple("".join(_first(texts, 0.5)))


def _joined(rng: random.Random, page: str, other: str) -> tuple[str, str]:
    """One page, and a page that has all of it and as much of another."""
    texts, more = PARAGRAPH.split(page)[1::2], PARAGRAPH.split(other)[1::2]
    return _simple("".join(texts)), _simple("".join(texts + more))


def _next_major(rng: random.Random, page: str, other: str) -> tuple[str, str]:
    """The same page of a release that changed much: every third paragraph is another one."""
    return _other_content(rng, page, other)


# --- not near, of made pages: no package needed ---

_NOUNS = (
    "table chair lamp river castle garden bicycle engine teacher window mountain coffee harbour letter winter bridge "
    "camera island forest market theatre pencil blanket kettle ladder mirror basket candle hammer compass violin"
)
_VERBS = "holds carries opens finds repairs paints sells moves shows keeps brings lifts cleans turns closes"
NOUNS, VERBS = _NOUNS.split(), _VERBS.split()


def _sentence(rng: random.Random) -> str:
    one, two, three = rng.sample(NOUNS, 3)
    return f"The {one} {rng.choice(VERBS)} a {two} near the old {three}."


def _paged_list(rng: random.Random) -> tuple[str, str]:
    def page(number: int) -> str:
        entries = "".join(
            f"<li>{rng.choice(NOUNS).title()} {rng.choice(NOUNS)} no. {rng.randrange(10**6)}, "
            f"{rng.randrange(5, 900)} euro, {rng.choice(NOUNS)} colour, from {rng.choice(NOUNS)} town</li>"
            for _ in range(20)
        )
        return _simple(f"<h1>All articles</h1><p>Page {number} of 91. Sorted by price.</p><ul>{entries}</ul>")

    return page(7), page(8)


def _product(rng: random.Random) -> tuple[str, str]:
    """Pages of a shop: what is said of delivery is the same everywhere, half of the text is of the product."""
    common = "".join(f"<p>{_sentence(rng)} {_sentence(rng)}</p>" for _ in range(3))

    def page() -> str:
        own = "".join(f"<p>{_sentence(rng)} {_sentence(rng)}</p>" for _ in range(4))
        return _simple(f"<h1>{rng.choice(NOUNS).title()} {rng.randrange(900)}</h1>{own}{common}")

    return page(), page()


def _figures(rng: random.Random) -> tuple[str, str]:
    """Tables with the same words and other figures."""

    def page() -> str:
        rows = "".join(
            f"<tr><td>{noun}</td><td>{rng.randrange(10**5)}</td><td>{rng.randrange(10**5)}</td></tr>" for noun in NOUNS
        )
        return _simple(f"<h1>Stock of the day</h1><p>{_sentence(random.Random(1))}</p><table>{rows}</table>")

    return page(), page()


def _empty(rng: random.Random) -> tuple[str, str]:
    forms = ("", " ", "<html></html>", _simple(""), _simple("<p></p>"), _simple("<img src=a.png>"), "<!-- -->")
    return rng.choice(forms), rng.choice(forms)


def _short(rng: random.Random) -> tuple[str, str]:
    """Too little to tell, even if equal."""
    text = " ".join(_sentence(rng) for _ in range(2))
    return _simple(f"<p>{text}</p>"), _simple(f"<p>{text}</p>")


def _error_pages(rng: random.Random) -> tuple[str, str]:
    def page() -> str:
        return _simple(f"<h1>Error</h1><p>Nothing is at /{rng.choice(NOUNS)}/{rng.randrange(10**6)}.</p>")

    return page(), page()


def _code(rng: random.Random) -> tuple[str, str]:
    """Two functions of a library: the same keywords, other names."""

    def page() -> str:
        a, b, c, d = rng.sample(NOUNS, 4)
        lines = (
            f"def {a}_{b}(self, {c}: int) -> str:",
            f'    """{_sentence(rng)}"""',
            f"    if {c} > {rng.randrange(99)}: return self.{d}[{c}]",
            f"    for {d} in range({c}): self.{a}.append({d} * {rng.randrange(99)})",
            f"    return str(self.{b} + {d})",
        )
        return _simple(f"<h1>{a}_{b}</h1><p>{_sentence(rng)} {_sentence(rng)}</p><pre>{chr(10).join(lines)}</pre>")

    return page(), page()


# Words of Chinese, Japanese and Thai, which are written without blanks.
SCRIPTS = {
    "zh": (
        "我们 今天 学习 网络 爬虫 如何 下载 网页 并且 保存 它们 的 内容 数据 服务器 速度 "
        "很 快 图书馆 里 有 许多 旧 书 老师 在 教室 写 字 学生 喜欢 音乐 城市 旁边 河流 "
        "夏天 下雨 火车 到达 车站 人们 买 水果 天气 变化 山上 风景 美丽"
    ),
    "ja": (
        "私たち は 今日 図書館 で 古い 本 を 読み ました 先生 が 教室 に 来て 話 始める "
        "学生 音楽 好き です 都市 川 夏 雨 電車 駅 着く 人々 果物 買う 天気 変わる 山 "
        "景色 美しい データ サーバー 速い ページ 保存 する 内容 検索 結果 毎日 朝 夜"
    ),
    "th": (
        "เรา วันนี้ เรียน เครือข่าย ดาวน์โหลด หน้าเว็บ "
        "และ เก็บ เนื้อหา ข้อมูล เซิร์ฟเวอร์ เร็ว มาก "
        "ห้องสมุด มี หนังสือ เก่า ครู เขียน ห้องเรียน "
        "นักเรียน ชอบ ดนตรี เมือง แม่น้ำ ฤดูร้อน ฝนตก "
        "รถไฟ ถึง สถานี คน ซื้อ ผลไม้ อากาศ เปลี่ยน ภูเขา "
        "สวยงาม"
    ),
}


def _unspaced(rng: random.Random) -> list[str]:
    script = rng.choice(sorted(SCRIPTS))
    words, end = SCRIPTS[script].split(), " " if script == "th" else "。"
    return ["".join(rng.choices(words, k=12)) + end for _ in range(24)]


def _unspaced_near(rng: random.Random) -> tuple[str, str]:
    """One sentence more, of 24, with the clock."""
    texts = _unspaced(rng)
    page = "".join(f"<p>{''.join(texts[at : at + 4])}</p>" for at in range(0, len(texts), 4))
    return _simple(page), _simple(f"<p>2026-11-29 {rng.randrange(10, 24)}:{rng.randrange(10, 60)}</p>{page}")


def _unspaced_reordered(rng: random.Random) -> tuple[str, str]:
    texts = _unspaced(rng)
    runs = [f"<p>{''.join(texts[at : at + 8])}</p>" for at in range(0, len(texts), 8)]
    return _simple("".join(runs)), _simple("".join([runs[2], runs[0], runs[1]]))


def _unspaced_far(rng: random.Random) -> tuple[str, str]:
    """Two texts with the same words, a third of the sentences the same."""
    script = rng.choice(sorted(SCRIPTS))
    words, end = SCRIPTS[script].split(), " " if script == "th" else "。"
    texts = ["".join(rng.choices(words, k=12)) + end for _ in range(40)]

    def page(own: list[str]) -> str:
        return _simple("".join(f"<p>{''.join(own[at : at + 4])}</p>" for at in range(0, len(own), 4)))

    return page(texts[:24]), page(texts[:8] + texts[24:])


# --- small helpers ---


def _simple(inside: str) -> str:
    return f"<!doctype html><html><head><title>A page</title></head><body><article>{inside}</article></body></html>"


def _in_body(page: str, begin: str, end: str) -> str:
    page = re.sub(r"(<body\b[^>]*>)", lambda one: one.group(1) + begin, page, count=1)
    return page.replace("</body>", end + "</body>", 1)


def _words(markup: str) -> list[str]:
    return html.unescape(re.sub(r"<[^>]*>", " ", markup)).split()


def _room(page: str) -> int:
    """How many advertisements are at most a twentieth of the text in paragraphs."""
    return max(1, min(3, len(_words("".join(PARAGRAPH.split(page)[1::2]))) // (20 * 16)))


def _between(rng: random.Random, page: str, more: list[str]) -> str:
    parts = PARAGRAPH.split(page)
    for text in more:
        at = rng.randrange(1, len(parts), 2)
        parts[at] += text
    return "".join(parts)


def _other_words(rng: random.Random, page: str, share: float, new: Callable[[str], str]) -> str:
    def one(found: re.Match[str]) -> str:
        return new(found.group()) if rng.random() < share else found.group()

    parts = PARAGRAPH.split(page)
    parts[1::2] = [re.sub(r"(?<=[ \n])[a-z]{3,}(?=[ ,.\n])", one, text) for text in parts[1::2]]
    return "".join(parts)


def _first(texts: list[str], share: float) -> list[str]:
    wanted, found = share * len(_words("".join(texts))), list[str]()
    for text in texts:
        if len(_words("".join(found))) >= wanted:
            break
        found.append(text)
    return found


KINDS: dict[str, Callable[..., tuple[str | bytes, str | bytes]]] = {
    name.removeprefix("_").replace("_", " "): made
    for name, made in {
        **{one.__name__: one for one in (_clock, _counter, _ads, _other_ads, _navigation, _banner, _comment)},
        **{one.__name__: one for one in (_reordered, _printed, _respelt, _typos, _next_version, _same)},
        **{one.__name__: one for one in (_of_one_template, _translated, _other_content, _half, _joined, _next_major)},
        **{one.__name__: one for one in (_paged_list, _product, _figures, _empty, _short, _error_pages, _code)},
        **{one.__name__: one for one in (_unspaced_near, _unspaced_reordered, _unspaced_far)},
    }.items()
}

# --- the table ---

OF_ONE_PAGE = ("clock", "counter", "ads", "other ads", "navigation", "banner", "comment", "reordered", "printed")
OF_ONE_PAGE_TOO = ("respelt", "typos", "next version", "same")
MADE_NEAR = ("unspaced near", "unspaced reordered")
MADE_FAR = ("paged list", "product", "figures", "empty", "short", "error pages", "code", "unspaced far")
LANGUAGES = ("ja", "ko", "fr", "tr", "es", "de", "zh-cn")


def _candidates() -> dict[str, list[str]]:
    """Pages with enough paragraphs, and none so long that the tests take minutes."""
    found = {}
    for name, folder in sorted(FOLDERS.items()):
        top = folder / "en" if name == "apache" else folder
        pages = []
        for path in sorted(top.rglob("*.html")):
            if not 4_000 < path.stat().st_size < 60_000 or path.is_symlink():
                continue
            page = f"{name}/{path.relative_to(folder)}"
            texts = PARAGRAPH.split(_read(page))[1::2]
            if len(texts) >= 9 and 350 <= len(_words("".join(texts))) <= 4_000:
                pages.append(page)
        found[name] = pages
    return {name: pages for name, pages in found.items() if len(pages) >= 9}


def _is_translated(page: str, language: str) -> bool:
    """Is it there, and not the English page, as where nobody has translated it?"""
    return _path(page).is_file() and f'lang="{language}"' in _read(page)[:600]


def rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    of = _candidates()
    names = sorted(of)
    for kind in (*OF_ONE_PAGE, *OF_ONE_PAGE_TOO):
        for seed in range(16):
            yield {"kind": kind, "near": True, "seed": seed, "page": rng.choice(of[names[seed % len(names)]])}
    for seed in range(60):
        one, other = rng.sample(of[names[seed % len(names)]], 2)
        yield {"kind": "of one template", "near": False, "seed": seed, "page": one, "other": other}
    for kind in ("other content", "joined", "next major"):
        for seed in range(20):
            one, other = rng.sample(of[names[seed % len(names)]], 2)
            yield {"kind": kind, "near": False, "seed": seed, "page": one, "other": other}
    for seed in range(20):
        yield {"kind": "half", "near": False, "seed": seed, "page": rng.choice(of[names[seed % len(names)]])}
    for seed in range(28):
        language = LANGUAGES[seed % len(LANGUAGES)]
        there = [one for one in of["apache"] if _is_translated(one.replace("/en/", f"/{language}/"), language)]
        one = rng.choice(there)
        other = one.replace("/en/", f"/{language}/")
        yield {"kind": "translated", "near": False, "seed": seed, "page": one, "other": other}
    for kind in (*MADE_NEAR, *MADE_FAR):
        for seed in range(20 if kind in MADE_NEAR else 10):
            yield {"kind": kind, "near": kind in MADE_NEAR, "seed": seed}


if __name__ == "__main__":
    TABLE.write_text("".join(json.dumps(row) + "\n" for row in rows(random.Random(61))), encoding="utf-8")
    sys.stdout.write(f"{TABLE}: {sum(1 for _ in pairs())} pairs\n")
