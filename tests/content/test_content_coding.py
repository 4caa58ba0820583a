import gzip
import resource
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.content.coding import MEMBERS_MAX, Inflated, inflate
from crawler.model import Decoded
from tests.support.growth import LINEAR_MAX, growth

MIB = 1024 * 1024
TEXT = b"".join(b"<p>paragraph %d of a page</p>\n" % n for n in range(1200))


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


ENCODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=4),
    "zstd": zstandard.ZstdCompressor().compress,
}


def decode(raw: bytes, coding: str, limit: int = 10 * MIB, ratio_max: int = 100) -> tuple[bytes, bool, str]:
    return inflated(raw, coding, limit=limit, ratio_max=ratio_max)[:3]


def inflated(raw: bytes, coding: str, limit: int = 10 * MIB, ratio_max: int = 100) -> Inflated:
    found = inflate(raw, coding, limit=limit, ratio_max=ratio_max)
    assert bool(found.error) is (found.decoded is not Decoded.CLEAN)
    return found


@pytest.mark.parametrize("coding", ENCODERS)
def test_each_coding_gives_back_what_went_in(coding: str) -> None:
    assert decode(ENCODERS[coding](TEXT), coding) == (TEXT, False, "")


@given(data=st.binary(max_size=5000), coding=st.sampled_from(sorted(ENCODERS)))
@settings(max_examples=150)
def test_any_body_survives_the_round_trip(data: bytes, coding: str) -> None:
    assert decode(ENCODERS[coding](data), coding) == (data, False, "")


@given(data=st.binary(max_size=3000), coding=st.sampled_from([*sorted(ENCODERS), "gzip, br", "deflate, gzip"]))
@settings(max_examples=300)
def test_garbage_never_raises_and_stays_bounded(data: bytes, coding: str) -> None:
    assert len(decode(data, coding, limit=4096)[0]) <= 4096


@given(cut=st.integers(min_value=1), coding=st.sampled_from(sorted(ENCODERS)))
@settings(max_examples=200)
def test_a_cut_body_keeps_a_true_prefix_and_is_flagged(cut: int, coding: str) -> None:
    whole = ENCODERS[coding](TEXT)
    body, _, error = decode(whole[: 1 + cut % (len(whole) - 1)], coding)
    assert TEXT.startswith(body)
    assert error


def test_no_coding_and_identity_leave_the_body_alone() -> None:
    assert decode(TEXT, "") == (TEXT, False, "")
    assert decode(TEXT, "Identity") == (TEXT, False, "")
    assert decode(b"", "gzip") == (b"", False, "")
    assert decode(TEXT, "", limit=10) == (TEXT[:10], True, "")


def test_raw_deflate_is_understood_where_zlib_was_meant() -> None:
    assert decode(raw_deflate(TEXT), "deflate") == (TEXT, False, "")


def test_two_layers_are_undone_in_the_right_order_and_three_are_refused() -> None:
    assert decode(brotli.compress(gzip.compress(TEXT)), "gzip, br") == (TEXT, False, "")
    body, truncated, error = decode(gzip.compress(gzip.compress(gzip.compress(TEXT))), "gzip,gzip,gzip")
    assert (body, truncated) == (b"", False)
    assert "3 layers" in error


@pytest.mark.parametrize(
    ("raw", "coding"), [(TEXT, "br"), (TEXT, "zstd"), (gzip.compress(TEXT), "br"), (b"\x1f\x8b\x09" + TEXT, "gzip")]
)
def test_a_coding_that_lies_is_an_error_with_an_empty_body(raw: bytes, coding: str) -> None:
    body, truncated, error = decode(raw, coding)
    assert (body, truncated) == (b"", False)
    assert error


def test_plain_text_under_deflate_is_an_error() -> None:
    assert inflated(TEXT, "deflate").decoded is Decoded.NOTHING


def test_all_members_of_a_gzip_body_are_read() -> None:
    assert decode(gzip.compress(TEXT) + gzip.compress(b"end"), "gzip") == (TEXT + b"end", False, "")


def test_garbage_after_a_gzip_member_is_flagged_and_the_body_kept() -> None:
    for garbage in (b"\n", b"\0" * 20, b"<!-- served by a proxy -->"):
        assert decode(gzip.compress(TEXT) + garbage, "gzip") == (TEXT, False, "trailing garbage")


def test_a_wrong_checksum_keeps_all_that_was_decoded() -> None:
    whole = gzip.compress(TEXT)
    body, _, error = decode(whole[:-8] + b"\0\0\0\0" + whole[-4:], "gzip")
    assert body == TEXT
    assert error


def test_damage_in_the_middle_keeps_what_came_before_it() -> None:
    noise = bytes((n * n * 31 + n // 7) % 251 for n in range(60_000))
    for encode, coding in ((gzip.compress, "gzip"), (zlib.compress, "deflate")):
        whole = bytearray(encode(noise))
        whole[len(whole) // 2] ^= 0xFF
        whole[len(whole) // 2 + 1] ^= 0xFF
        body, _, error = decode(bytes(whole), coding)
        assert error, coding
        assert len(body) > 1000, coding
        assert body[:1000] == noise[:1000], coding


def test_output_beyond_the_limit_is_cut_without_error() -> None:
    for coding, encode in ENCODERS.items():
        assert decode(encode(TEXT), coding, limit=1000) == (TEXT[:1000], True, "")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_an_error_and_stays_within_the_memory_limit(coding: str) -> None:
    bomb = ENCODERS[coding](bytes(100 * MIB))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    body, truncated, error = decode(bomb, coding, limit=10 * MIB)
    risen_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) * 1024
    assert len(body) <= 10 * MIB
    assert truncated or "times its size" in error
    assert risen_bytes < 30 * MIB


@pytest.mark.slow(ci=True)
def test_a_bomb_in_two_layers_is_judged_by_the_bytes_that_came_over_the_wire() -> None:
    bomb = gzip.compress(gzip.compress(bytes(100 * MIB)))
    body, truncated, error = decode(bomb, "gzip, gzip")
    assert (len(body), truncated) == (MIB, False)
    assert "100 times" in error


def test_a_zstd_frame_that_asks_for_a_large_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body, _, error = decode(packer.compress(TEXT) + packer.flush(), "zstd")
    assert body == b""
    assert "memory" in error


def test_zstd_frames_with_checksum_and_run_length_blocks_count_as_whole() -> None:
    packer = zstandard.ZstdCompressor(write_checksum=True)
    assert decode(packer.compress(b"a" * 300_000 + TEXT), "zstd") == (b"a" * 300_000 + TEXT, False, "")
    assert inflated(packer.compress(TEXT)[:-1], "zstd").error


def test_a_gzip_body_of_empty_members_is_cut_after_some_and_flagged() -> None:
    """What a decoder leaves over is a copy: members by the hundred thousand once took minutes."""
    small, raw = [gzip.compress(TEXT) + gzip.compress(b"") * count for count in (40_000, 400_000)]
    assert growth(lambda raw: decode(raw, "gzip"), small, raw) < LINEAR_MAX
    body, _, error = decode(raw, "gzip")
    assert body == TEXT
    assert error == f"more than {MEMBERS_MAX} gzip members"
    assert growth(lambda raw: decode(raw, "gzip, gzip"), gzip.compress(small), gzip.compress(raw)) < LINEAR_MAX


@pytest.mark.parametrize(
    ("before", "unit", "count", "coding"),
    [
        (b"\x78\x9c", b"\0\0\0\xff\xff", 400_000, "deflate"),
        (b"", b"\0\0\0\xff\xff", 400_000, "deflate"),
        (b"\x1b\x03\x00", b"\x06", 2_000_000, "br"),
        (b"", b"\x50\x2a\x4d\x18\0\0\0\0", 250_000, "zstd"),
        (b"", zstandard.ZstdCompressor().compress(b""), 200_000, "zstd"),
        (zstandard.ZstdCompressor().compress(b"x")[:-4], b"\0\0\0", 600_000, "zstd"),
        (gzip.compress(b"")[:10], b"\0\0\0\xff\xff", 400_000, "gzip"),
    ],
    ids=["zlib blocks", "raw blocks", "brotli", "zstd skippable", "zstd frames", "zstd blocks", "gzip blocks"],
)
def test_megabytes_that_inflate_to_nothing_cost_linear_time(
    before: bytes, unit: bytes, count: int, coding: str
) -> None:
    small, large = before + unit * (count // 10), before + unit * count
    assert growth(lambda raw: decode(raw, coding), small, large) < LINEAR_MAX


def test_members_of_any_size_are_read_to_their_end() -> None:
    parts = [bytes([n % 251]) * n for n in (0, 1, 100, 5000, 300_000, 3, 0, 70_000)]
    noise = [bytes((n * n * 31 + n // 7 + k) % 251 for n in range(20_000)) for k in range(5)]
    whole = [*parts, *noise]
    assert decode(b"".join(map(gzip.compress, whole)), "gzip") == (b"".join(whole), False, "")


@pytest.mark.parametrize(
    ("raw", "body", "error"),
    [
        (gzip.compress(TEXT)[:-1], TEXT, "incomplete"),
        (gzip.compress(TEXT)[:-8], TEXT, "incomplete"),
        (gzip.compress(TEXT)[:-4] + b"\1\1\1\1", TEXT, None),
        (gzip.compress(TEXT) + gzip.compress(TEXT)[:-8] + b"\0" * 8, TEXT + TEXT, None),
        (gzip.compress(TEXT) + gzip.compress(b"more")[:-3], TEXT + b"more", "incomplete"),
        (gzip.compress(TEXT) + gzip.compress(b"")[:5], TEXT, "incomplete"),
    ],
    ids=["cut", "no trailer", "wrong size", "second checksum", "second cut", "cut header"],
)
def test_a_damaged_gzip_body_keeps_what_decoded_and_is_flagged(raw: bytes, body: bytes, error: str | None) -> None:
    found = inflated(raw, "gzip")
    assert found.body == body
    assert found.error
    assert error is None or found.error == error
