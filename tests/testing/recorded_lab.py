"""WARC files as others make them: by warcio, by wget, with revisits, cut off, damaged."""

import gzip
import io
from collections.abc import Sequence
from pathlib import Path

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter


class Writer:
    """A WARC file that warcio writes."""

    def __init__(self, file: Path, *, packed: bool = True) -> None:
        self.file = file
        self._stream = file.open("wb")
        self._writer = WARCWriter(self._stream, gzip=packed)

    def response(
        self,
        url: str,
        body: bytes,
        *headers: tuple[str, str],
        status: str = "200 OK",
        date: str = "2026-01-01T00:00:00Z",
    ) -> None:
        head = StatusAndHeaders(status, list(headers), protocol="HTTP/1.1")
        self._write(url, "response", body, head, date)

    def revisit(self, url: str, of: str, *headers: tuple[str, str], date: str, digest: str = "sha1:NONE") -> None:
        head = StatusAndHeaders("200 OK", list(headers), protocol="HTTP/1.1") if headers else None
        record = self._writer.create_revisit_record(
            url, digest=digest, refers_to_uri=of, refers_to_date="2026-01-01T00:00:00Z", http_headers=head,
            warc_headers_dict={"WARC-Date": date},
        )  # fmt: skip
        self._writer.write_record(record)

    def other(self, url: str, kind: str, payload: bytes) -> None:
        self._writer.write_record(self._writer.create_warc_record(url, kind, payload=io.BytesIO(payload)))

    def raw(self, url: str, block: bytes) -> None:
        """A response whose block is no HTTP, perhaps."""
        head = f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        head += f"WARC-Record-ID: <urn:uuid:1>\r\nContent-Length: {len(block)}\r\n\r\n"
        self._stream.write(gzip.compress(head.encode() + block + b"\r\n\r\n"))

    def _write(self, url: str, kind: str, body: bytes, head: StatusAndHeaders, date: str) -> None:
        record = self._writer.create_warc_record(
            url, kind, payload=io.BytesIO(body), http_headers=head, warc_headers_dict={"WARC-Date": date}
        )
        self._writer.write_record(record)

    def close(self) -> Path:
        self._stream.close()
        return self.file


def written(file: Path, responses: Sequence[tuple[str, bytes]], *, packed: bool = True) -> Path:
    writer = Writer(file, packed=packed)
    for url, body in responses:
        writer.response(url, body, ("Content-Type", "text/html"))
    return writer.close()
