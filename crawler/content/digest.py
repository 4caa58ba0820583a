"""Payload digests as WARC files and their indexes spell them."""

import base64
import hashlib


def payload_digest(payload: bytes) -> str:
    """SHA-1 in base 32 after "sha1:", the form that pywb and OutbackCDX compare (a name, not a safeguard)."""
    return "sha1:" + base64.b32encode(hashlib.sha1(payload, usedforsecurity=False).digest()).decode("ascii")
