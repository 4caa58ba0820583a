import random
import re
from collections import Counter
from itertools import pairwise
from zlib import crc32

import pytest

from crawler.content.fingerprint import CHARS_MAX, DISTANCE, WORDS_MIN, fingerprint_of
from crawler.content.main_text import main_text
from tests.content.near_pairs import bodies, is_there, pairs
from tests.support.growth import LINEAR_MAX, growth

WORDS = [f"word{number}" for number in range(400)]


def text_of(body: bytes) -> str:
    return main_text(body, "utf-16" if body.startswith(b"\xff\xfe") else "utf-8")


def judged(rows: list[dict]) -> tuple[Counter, list[str]]:
    """How many are rightly or wrongly said to be near or not, and which are wrong."""
    found, wrong = Counter[tuple[bool, bool]](), []
    for pair in rows:
        one, other = (fingerprint_of(text_of(body)) for body in bodies(pair))
        is_near = bool(one and other) and (one ^ other).bit_count() <= DISTANCE
        found[pair["near"], is_near] += 1
        if is_near is not pair["near"]:
            wrong.append(f"{pair['kind']} {pair['seed']}")
    return found, wrong


def assert_good(rows: list[dict]) -> None:
    found, wrong = judged(rows)
    assert found[True, True] >= 0.95 * (found[True, True] + found[False, True]), f"precision: {wrong}"
    assert found[True, True] >= 0.95 * (found[True, True] + found[True, False]), f"recall: {wrong}"


def test_made_pairs_are_told_apart() -> None:
    rows = [pair for pair in pairs() if "page" not in pair]
    assert len(rows) > 100
    assert_good(rows)


@pytest.mark.slow(ci=True, seconds=60)
def test_labelled_pairs_of_real_pages_are_told_apart() -> None:
    rows = [pair for pair in pairs() if is_there(pair)]
    if len(rows) < 400:
        pytest.skip("Debian's documentation packages are not installed")
    assert_good(rows)


def plainly(text: str) -> int:
    """The same as the module's first lines say it, step by step."""
    blankless = (
        "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
        "\uf900-\ufaff\U00020000-\U0003ffff]"
    )
    words, word = [], ""
    for sign in text[:CHARS_MAX].casefold()[:CHARS_MAX] + " ":
        is_alone = re.match(blankless, sign) is not None
        if re.match(r"\w", sign) and not is_alone:
            word += sign
            continue
        words += [word] if word else []
        words += [sign] if is_alone else []
        word = ""
    if len(words) < WORDS_MIN:
        return 0
    codes = [crc32(word.encode()) * 0x9E3779B97F4A7C15 % 2**64 for word in words]
    bins: dict[int, int] = {}
    for one, other in pairwise(codes):
        value = one ^ (other >> 1)
        bins[value % 64] = min(value, bins.get(value % 64, value))
    bits = ""
    for number in reversed(range(64)):
        asked = [number, *sorted(range(64), key=lambda other: crc32(f"{number} {other}".encode()))]
        value = next(bins[one] for one in asked if one in bins)
        bits += str(value >> (10 + number % 32) & 1)
    return int(bits, 2) or 1


def test_a_fingerprint_is_what_its_description_says() -> None:
    rng = random.Random(5)
    signs = "abcXYZ019_ .,-\n\té ßΣñ漢字カナไทย한국\u3000“”\U00020000"
    for _ in range(200):
        text = "".join(rng.choices(signs, k=rng.randrange(400)))
        assert fingerprint_of(text) == plainly(text), text


def test_fingerprints_of_releases_can_be_compared() -> None:
    english = "The quick brown fox jumps over the lazy dog, and then it sleeps in the sun. " * 3
    chinese = "我们今天学习网络爬虫如何下载网页并且保存它们的内容数据服务器速度很快图书馆里有许多旧书"
    assert [f"{fingerprint_of(text):016x}" for text in (english, chinese)] == ["6c9d0e9f2764bd85", "5ca4e71e3d4f62a4"]


def test_case_blanks_and_punctuation_change_nothing() -> None:
    text = " ".join(WORDS[:50])
    assert fingerprint_of(text) == fingerprint_of(text.upper().replace(" ", ",\n  ")) != 0
    assert fingerprint_of(text + " “") == fingerprint_of(text), "the same by both ways of taking words"


@pytest.mark.parametrize(
    "text", ["", " \n", "…", " ".join(WORDS[: WORDS_MIN - 1]), "字" * (WORDS_MIN - 1), "x" * 10**6]
)
def test_a_text_too_short_to_tell_has_none(text: str) -> None:
    assert fingerprint_of(text) == 0


def test_few_words_repeated_have_one() -> None:
    assert fingerprint_of("go " * WORDS_MIN) != 0
    assert fingerprint_of("\ud800 a " * WORDS_MIN) != 0, "half of a character"


def test_what_follows_the_prefix_is_not_read() -> None:
    text = "".join(f"{random.Random(number).choice(WORDS)} " for number in range(CHARS_MAX // 4))
    assert len(text) > CHARS_MAX
    assert fingerprint_of(text) == fingerprint_of(text[:CHARS_MAX]) == fingerprint_of(text[:CHARS_MAX] + "x" * 10**6)
    assert fingerprint_of("ﷺ " * CHARS_MAX), "characters that grow when they are folded"


@pytest.mark.parametrize("signs", ["a b", "漢", "ä", "a\u0301\u0316", "x,", "ﷺ"])
def test_time_grows_no_faster_than_the_text(signs: str) -> None:
    small, large = (signs * (length // len(signs)) for length in (CHARS_MAX // 10, CHARS_MAX))
    assert growth(fingerprint_of, small, large) < LINEAR_MAX
