"""Rights: what sites say about the use of their pages, and what that means for each purpose. Pure.

What is read, and by which text:

    Content-Signal    contentsignals.org, draft-romm-aipref-contentsignals-00 (in robots.txt; some send it as a header)
    Content-Usage     draft-ietf-aipref-attach-05, draft-ietf-aipref-vocab-07 and the labels of earlier versions
    License, Link     RSL 1.0; Link and <link> with rel=license also lead to other licences
    tdm-reservation   TDM Reservation Protocol, final report of the W3C community group of 10 May 2024
    X-Robots-Tag      noindex; noai and noimageai, which nobody has specified (DeviantArt, 2022). Likewise <meta>

`VOCABULARY` maps their words to purposes. What is not in it is kept as text and means nothing. A purpose is "n" if any
statement says so, "y" if one does and none says "n", else unknown (vocab-07, 7.1). Where a value is not as its text
wants it, it may still say "n", and never "y": a mistake of the site must not become a permission.
"""

from collections.abc import Iterable
from typing import NamedTuple

from crawler.model import Rights, Statement
from crawler.rules.urls import join

PURPOSES = ("search", "ai_input", "ai_train", "tdm")
YES, NO, UNKNOWN = "y", "n", "unknown"

STATEMENTS_MAX = 16  # that are kept of a page
VALUE_CHARS_MAX = 512  # of each; a longer one is cut. With both, the rights of a page take some 10 KiB at most
LICENSES_MAX = 4


class Meaning(NamedTuple):
    """The purposes that a word forbids when it says no, and those that it allows when it says yes."""

    no: tuple[str, ...]
    yes: tuple[str, ...]
    is_broad: bool = False  # it is for those purposes only that the same statement names by no other word


_SEARCH = Meaning(("search",), ("search",))
_INPUT = Meaning(("ai_input",), ("ai_input",))
_TRAIN = Meaning(("ai_train",), ("ai_train",))
# To train a model is to mine; who may mine for something need not be allowed to train.
_TDM = Meaning(("tdm", "ai_train", "ai_input"), ("tdm",), is_broad=True)
_ALL = Meaning(PURPOSES, (), is_broad=True)
VOCABULARY = {
    "search": _SEARCH,
    "ai-input": _INPUT,  # Content Signals
    "ai-use": _INPUT,  # vocab-02
    "ai-train": _TRAIN,  # Content Signals
    "train-ai": _TRAIN,  # vocab-02 and later
    "train-genai": _TRAIN,  # vocab-02 to 04
    "genai": _TRAIN,  # vocab-00 and 01, as the next two
    "ai": Meaning(("ai_train", "ai_input"), (), is_broad=True),
    "tdm": _TDM,
    "all": _ALL,  # vocab-02
    "bots": _ALL,  # vocab-03 and 04
    "tdm-reservation": _TDM,
    "noindex": Meaning(("search",), ()),
    "none": Meaning(("search",), ()),  # of robots: noindex and nofollow
    "noai": Meaning(("ai_train", "ai_input"), ()),
    "noimageai": Meaning(("ai_train", "ai_input"), ()),  # of a page that is an image
}
DIRECTIVES = frozenset(("noindex", "none", "noai", "noimageai"))  # of robots, in headers and metas
IMAGES_ONLY = "noimageai"

ROBOTS, USAGE, SIGNAL, RESERVATION, POLICY = (
    "x-robots-tag", "content-usage", "content-signal", "tdm-reservation", "tdm-policy",
)  # fmt: skip
LICENSE, LINK, RSL = "license", "link", "rsl"
_OTHERS = (*DIRECTIVES, RESERVATION)
_OF_PAIRS = {label: meaning for label, meaning in VOCABULARY.items() if label not in _OTHERS}
PREFERENCES = frozenset((USAGE, SIGNAL))  # whose values are lists of "word=y" and "word=n"
META_NAMES = frozenset((USAGE, SIGNAL, RESERVATION, POLICY))  # of <meta>; those of robots directives are others

_YES, _NO = frozenset(("y", "yes", "true", "allow", "1")), frozenset(("n", "no", "false", "disallow", "0"))
_LABEL = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.*")
_BLANKS = " \t"


def statement(place: str, key: str, value: str) -> tuple[Statement, bool]:
    """A statement as it is kept, and whether its value was cut. It means the same as the whole value."""
    if len(value) <= VALUE_CHARS_MAX:
        shown = _printable(value)
        if len(shown) <= VALUE_CHARS_MAX:
            return Statement(place, key, shown), False
    if key in PREFERENCES:
        return Statement(place, key, _mapped_pairs(value)), True
    return Statement(place, key, _printable(value[:VALUE_CHARS_MAX])[:VALUE_CHARS_MAX]), True


def _printable(value: str) -> str:
    """In printable ASCII: whatever else there is, and what only looks like a letter, is escaped."""
    if value.isascii() and value.isprintable():
        return value
    text = value.encode("ascii", "backslashreplace").decode()
    return "".join([c if c.isprintable() else f"\\x{ord(c):02x}" for c in text])


class Said:
    """Statements of one place while they are gathered: the first are kept, and those that forbid something more."""

    def __init__(self) -> None:
        self._kept: dict[Statement, None] = {}
        self._forbidden: set[str] = set()
        self.cut = 0  # statements that are not kept, or not whole

    @property
    def kept(self) -> tuple[Statement, ...]:
        return tuple(self._kept)

    def add(self, place: str, key: str, value: str) -> None:
        """A statement as it was received; the same one again counts once."""
        one, is_cut = statement(place, key, value)
        if one in self._kept:
            return
        forbidden = {purpose for purpose, word in meaning_of(key, one.value).items() if word == NO}
        if len(self._kept) < STATEMENTS_MAX or not forbidden <= self._forbidden:
            self._kept[one] = None
            self._forbidden |= forbidden
            self.cut += is_cut
        else:
            self.cut += 1


def rights_of(statements: Iterable[Statement], url: str = "", *, cut: int = 0, is_image: bool = False) -> Rights | None:
    """All that is said about one page, and what that means; None: nothing. `url`: of the page, for licences that are
    named by a path. `cut`: statements that are missing.

    All of them count for the purposes; the first ones are kept, and those that forbid something more.
    """
    said, licenses, kept = dict[str, str](), dict[str, None](), dict[Statement, None]()
    for one in statements:
        if one in kept:
            continue
        is_new = False
        for purpose, word in meaning_of(one.key, one.value, is_image=is_image).items():
            if said.get(purpose) != NO:
                is_new, said[purpose] = is_new or word == NO, word
        if one.key in (LICENSE, POLICY) and len(licenses) < LICENSES_MAX and " " not in one.value:
            licenses[_absolute(one, url)] = None
        if len(kept) < STATEMENTS_MAX or is_new:
            kept[one] = None
        else:
            cut += 1
    if not (kept or cut):
        return None
    return Rights(**said, license=" ".join(licenses), sources=tuple(kept), cut=cut)


def _absolute(one: Statement, url: str) -> str:
    """Where a licence or policy is. What robots.txt names begins at its own place (RFC 3986 5.1)."""
    if "://" in one.value or not url:
        return one.value
    base = join(url, "/") if one.place.startswith("robots.txt") else url
    found = join(base, one.value) if base else None
    return found if found and len(found) <= VALUE_CHARS_MAX else one.value


def meaning_of(key: str, value: str, *, is_image: bool = False) -> dict[str, str]:
    """What one statement says of each purpose: "y" or "n"; purposes of which it says nothing are not in it."""
    if key in PREFERENCES:
        return _of_pairs(value)
    if key == RESERVATION:
        return _of_reservation(value)
    if key == ROBOTS:
        words = [
            one for one in value.replace(",", " ").split() if one in DIRECTIVES and (one != IMAGES_ONLY or is_image)
        ]
        return {purpose: NO for one in words for purpose in VOCABULARY[one].no}
    return {}


def _of_reservation(value: str) -> dict[str, str]:
    """TDMRep knows 1 and 0; whatever else somebody writes who means "reserved" is like 1."""
    word = value.strip().lower()
    if word in _NO:  # nothing is reserved
        return dict.fromkeys(_TDM.yes, YES)
    return dict.fromkeys(_TDM.no, NO) if word in _YES or word == "reserved" else {}


def _of_pairs(value: str) -> dict[str, str]:
    """Of "word=y, word=n". Pairs are found wherever they are; only a value that is nothing but pairs can allow."""
    pairs, is_sound = _pairs_in(value)
    said: dict[str, str] = {}
    broad: list[tuple[Meaning, str]] = []
    named: set[str] = set()
    for label, word in pairs:
        meaning = _OF_PAIRS.get(label)
        if meaning is None or word not in (YES, NO):
            continue
        if meaning.is_broad:
            broad.append((meaning, word))
            continue
        named.update(meaning.no)
        _say(said, meaning, word, is_sound=is_sound)
    for meaning, word in broad:
        of_others = Meaning(
            tuple(one for one in meaning.no if one not in named), tuple(one for one in meaning.yes if one not in named)
        )
        _say(said, of_others, word, is_sound=is_sound)
    return said


def _say(said: dict[str, str], meaning: Meaning, word: str, *, is_sound: bool) -> None:
    if word == NO:
        said |= dict.fromkeys(meaning.no, NO)
    elif is_sound:
        said |= {purpose: YES for purpose in meaning.yes if said.get(purpose) != NO}


def _pairs_in(value: str) -> tuple[list[tuple[str, str]], bool]:
    """The pairs of a value, (label, "y", "n" or another word), and whether it has the form of a list of such pairs."""
    texts = value.replace("=", " = ").replace(",", " ").replace(";", " ").split()
    found = []
    for at in range(1, len(texts) - 1):
        if texts[at] == "=":
            word = texts[at + 1].strip("\"'?:").lower()
            found.append((texts[at - 1].lower(), YES if word in _YES else NO if word in _NO else word))
    return found, all(map(_is_pair, value.split(",")))


def _is_pair(member: str) -> bool:
    """As a structured field (RFC 9651) has it; parameters mean nothing."""
    label, _, word = member.partition(";")[0].strip(_BLANKS).partition("=")
    return label != "" and _LABEL.issuperset(label) and not word.count(" ")


def _mapped_pairs(value: str) -> str:
    """What a long value has of the vocabulary; it means the same, and is short: each pair is there once."""
    pairs, is_sound = _pairs_in(value)
    usable = dict.fromkeys(
        f"{label}={word}" for label, word in pairs if label in _OF_PAIRS and (word == NO or (is_sound and word == YES))
    )
    return ", ".join(usable)


def short_text(rights: Rights | None) -> str:
    """In one line, like "search y, ai-train n, license https://..."; "unknown" where nothing is known. ASCII."""
    said = [f"{outside(purpose)} {word}" for purpose in PURPOSES if rights and (word := getattr(rights, purpose))]
    said += [f"license {rights.license}"] if rights and rights.license else []
    return ", ".join(said) or UNKNOWN


def outside(purpose: str) -> str:
    """A purpose as settings and people write it: "ai-train"."""
    return purpose.replace("_", "-")


def inside(purpose: str) -> str:
    """A purpose as records have it: "ai_train"."""
    return purpose.replace("-", "_")


def answer(rights: Rights | None, purpose: str) -> str:
    """What is known of a purpose (as records have it): "y", "n" or "unknown"."""
    word: str = getattr(rights, purpose) if rights is not None else ""
    return word or UNKNOWN


def forbidding(statements: Iterable[Statement], purpose: str, *, is_image: bool = False) -> Statement | None:
    """The first of these that says no to a purpose; None: none does."""
    for one in statements:
        if meaning_of(one.key, one.value, is_image=is_image).get(purpose) == NO:
            return one
    return None


def statement_text(one: Statement) -> str:
    """Like "robots.txt line 3: content-signal: ai-train=no"."""
    place, _, number = one.place.partition(":")
    where = f"{place} {'line' if place == 'robots.txt' else 'rule'} {number}" if number else place
    return f"{where}: {one.key}: {one.value}"
