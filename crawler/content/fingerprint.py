"""A fingerprint of a text in 64 bits: texts that say the same differ in few of them. Pure; linear in a bounded prefix.

**What it is, exactly.** Of the first `CHARS_MAX` characters, case-folded, the words are taken: runs of letters, digits
and underscores, and each character alone of scripts that are written without blanks (Chinese, Japanese, Thai, Lao,
Burmese, Khmer). A text of fewer than `WORDS_MIN` words has no fingerprint. A word's value is the CRC-32 of its UTF-8
times `FACTOR`, modulo 2^64; two neighbours have the value `first ^ second >> 1`. The set of these values is sampled by
one permutation (Li, Owen and Zhang 2012, "One Permutation Hashing"): the lowest six bits of a value name one of 64
bins, and of each bin the least value counts. Bin `b` gives bit `b` of the fingerprint: bit `10 + b % 32` of its value
(one bit of each: Li and Koenig 2010, "b-Bit Minwise Hashing"). An empty bin takes the value of another one, in an order
fixed for each bin (Shrivastava 2017, "Optimal Densification"). A fingerprint is never 0; 0 says that there is none.

If J is the share that two texts have of all their pairs of words, about 32 * (1 - J) bits differ: that of a SimHash
grows by the square root, and few changed words flip as many bits as other chapters do. What was compared is in
docs/internals/decisions/near-duplicates.md.
"""

import re
from functools import cache
from itertools import repeat
from operator import rshift, xor
from zlib import crc32

CHARS_MAX = 1 << 18  # of a text: some 40,000 words, 20 ms
WORDS_MIN = 24
DISTANCE = 4  # bits in which two texts may differ that say the same

BITS = 64
FACTOR = 0x9E3779B97F4A7C15  # odd, of no pattern: 2^64 / golden ratio
_ALL = (1 << 64) - 1
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_BLANKS = {number: " " for number in range(128) if not (chr(number).isalnum() or chr(number) == "_")}
_words = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+").findall


def fingerprint_of(text: str) -> int:
    """The fingerprint of a text; 0 of one that is too short to have one."""
    words = _words_of(text[:CHARS_MAX].casefold()[:CHARS_MAX])
    if len(words) < WORDS_MIN:
        return 0
    codes = {word: crc32(word.encode("utf-8", "surrogatepass")) * FACTOR & _ALL for word in set(words)}
    firsts = [codes[word] for word in words]
    pairs = set(map(xor, firsts, map(rshift, firsts[1:], repeat(1))))  # no loop of ours: a third of the time
    least = {value & 63: value for value in sorted(pairs, reverse=True)}  # the last one of a bin stays
    found = 0
    for number in range(BITS):
        value = least.get(number)
        if value is None:
            value = least[next(other for other in _others(number) if other in least)]
        found |= (value >> (10 + number % 32) & 1) << number
    return found or 1


def _words_of(text: str) -> list[str]:
    return text.translate(_ASCII_BLANKS).split() if text.isascii() else _words(text)


@cache
def _others(number: int) -> tuple[int, ...]:
    """In which order an empty bin asks the others."""
    return tuple(sorted(range(BITS), key=lambda other: crc32(b"%d %d" % (number, other))))
