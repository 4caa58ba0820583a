"""How a web is sent: over plain HTTP or TLS, and compressed or not. Certificates come from an authority of our own."""

import gzip
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import brotli

TLS = ("kept", "new", "resumed")
ENCODINGS = ("gzip", "br")
REQUESTS_PER_CONNECTION = 10  # where the server makes clients connect again
_MODULES = Path("/usr/lib/nginx/modules")
_CA = "ca"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "9")


@dataclass(frozen=True)
class Server:
    """A server of nginx: its names, what its block has beside them, and what comes before the block."""

    names: Sequence[str]
    block: str
    before: str = ""


@dataclass(frozen=True, kw_only=True)
class Transport:
    """`tls`: "" for plain HTTP; "kept": connections stay open; "new" and "resumed": the server closes each after
    REQUESTS_PER_CONNECTION requests, and the next handshake can't or can resume the last session. `encoding`: that of
    all pages, for clients that accept it.
    """

    tls: str = ""
    encoding: str = ""

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def name(self) -> str:
        """For file names and titles; "" for plain HTTP without compression."""
        return "-".join(filter(None, (self.tls and f"tls-{self.tls}", self.encoding)))

    def missing(self) -> list[str]:
        """Packages that it needs and that are not installed."""
        found = [] if not self.tls or shutil.which("openssl") else ["openssl"]
        if self.encoding == "br" and not (_MODULES / "ngx_http_brotli_static_module.so").exists():
            found.append("libnginx-mod-http-brotli-static")
        return found

    def first_lines(self) -> str:
        """Of nginx's configuration."""
        return f"load_module {_MODULES}/ngx_http_brotli_static_module.so;" if self.encoding == "br" else ""

    def http_lines(self, home: Path) -> str:
        """Of nginx's section `http`. Each handshake is a line in `handshakes` below `home`."""
        lines = [f"keepalive_requests {REQUESTS_PER_CONNECTION if self.tls in ('new', 'resumed') else 1_000_000};"]
        lines += {"gzip": ["gzip_static on;"], "br": ["brotli_static on;"]}.get(self.encoding, [])
        if self.tls:
            lines += [
                "ssl_session_tickets off; ssl_session_cache off;" if self.tls == "new" else "ssl_session_tickets on;",
                "log_format handshake '$ssl_session_reused'; map $connection_requests $is_first { 1 1; default 0; }",
                f"access_log {home}/handshakes handshake if=$is_first;",
            ]
        else:
            lines.append("access_log off;")
        return " ".join(lines)

    def write_compressed(self, source: Path, target: Path) -> None:
        """A copy of a folder of HTML: links to its pages, and each of them compressed."""
        compress = {"gzip": lambda body: gzip.compress(body, 6), "br": lambda body: brotli.compress(body, quality=5)}
        suffix = {"gzip": ".gz", "br": ".br"}[self.encoding]
        for page in source.rglob("*"):
            if page.suffix not in (".html", ".htm") or not page.is_file():
                continue
            copy = target / page.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(page.resolve())
            copy.with_name(copy.name + suffix).write_bytes(compress[self.encoding](page.read_bytes()))


class Authority:
    """A certificate authority below a folder. `file` is what clients have to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self.file = folder / f"{_CA}.pem"
        _openssl(folder, "-subj", "/CN=ca", "-keyout", f"{_CA}.key", "-out", self.file.name)

    def sign(self, names: Sequence[str]) -> str:
        """nginx's directives for a new certificate with these names."""
        self._made += 1
        key, certificate = f"{self._made}.key", f"{self._made}.pem"
        alternatives = ",".join(f"DNS:{name}" for name in names)
        signed = ("-CA", self.file.name, "-CAkey", f"{_CA}.key", "-addext", "basicConstraints=critical,CA:FALSE")
        kind = ("-subj", "/CN=bench", "-addext", f"subjectAltName={alternatives}")
        _openssl(self._folder, *kind, *signed, "-keyout", key, "-out", certificate)
        return f"ssl_certificate {self._folder}/{certificate}; ssl_certificate_key {self._folder}/{key};"


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", "req", "-x509", *_KEY, *words], cwd=folder, check=True, capture_output=True)


PLAIN = Transport()
