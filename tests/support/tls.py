"""A certificate authority of our own, made when a test needs it, and servers' sides of TLS with what it signs."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

_CONFIG = """
[ca]
default_ca = own
[own]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
copy_extensions = copy
policy = any
[any]
commonName = optional
"""
NOW, FAR = ("20240101000000Z", "20991231000000Z"), ("20200101000000Z", "20200102000000Z")


class Authority:
    """`file` is what clients have to trust: set SSL_CERT_FILE to it. Skips the test where there is no openssl."""

    def __init__(self, folder: Path) -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("openssl is not installed: no certificate to test with")
        self._openssl, self._folder, self._made = openssl, folder, 0
        self.file = folder / "ca.pem"
        (folder / "index.txt").touch()
        (folder / "ca.cnf").write_text(_CONFIG.format(folder=folder), "utf-8")
        self._run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -subj /CN=ca "
                  "-keyout ca.key -out ca.pem")  # fmt: skip

    def server(self, *, name: str = "h.test", san: str = "DNS:h.test", digest: str = "sha256", expired: bool = False,
               chain_bytes: int = 0) -> ssl.SSLContext:  # fmt: skip
        """The server's side with a certificate of ours; `san` "" leaves subjectAltName out."""
        self._made += 1
        key, csr, cert = (f"{self._made}.{kind}" for kind in ("key", "csr", "pem"))
        subject_alt_name = f"-addext subjectAltName={san} " if san else ""
        self._run("req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
                  f"-subj /CN={name} {subject_alt_name}-keyout {key} -out {csr}")  # fmt: skip
        begins, ends = FAR if expired else NOW
        self._run(f"ca -batch -config ca.cnf -in {csr} -out {cert} -cert ca.pem -keyfile ca.key -notext -md {digest} "
                  f"-startdate {begins} -enddate {ends}")  # fmt: skip
        if chain_bytes:
            one = self.file.read_bytes()
            with (self._folder / cert).open("ab") as file:
                file.write(one * (chain_bytes // (len(one) * 3 // 4)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("ALL:@SECLEVEL=0")  # what a careful server would not serve
        context.load_cert_chain(self._folder / cert, self._folder / key)
        return context

    def incomplete(self) -> tuple[ssl.SSLContext, Path]:
        """The server's side with a certificate of an authority below ours, which it does not send; that authority's."""
        new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9"
        self._run(f"{new} -CA ca.pem -CAkey ca.key -subj /CN=middle -addext basicConstraints=critical,CA:TRUE "
                  "-keyout middle.key -out middle.pem")  # fmt: skip
        self._run(f"{new} -CA middle.pem -CAkey middle.key -subj /CN=h.test -addext subjectAltName=DNS:h.test "
                  "-addext basicConstraints=CA:FALSE -keyout leaf.key -out leaf.pem")  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "leaf.pem", self._folder / "leaf.key")
        return context, self._folder / "middle.pem"

    @contextlib.asynccontextmanager
    async def interactive_server(self) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
        """TLS 1.2, and its port: what is written to it is sent, a line "R" asks for another handshake."""
        self.server()
        command = f"s_server -tls1_2 -accept 127.0.0.1:0 -cert {self._made}.pem -key {self._made}.key"
        pipe = asyncio.subprocess.PIPE
        server = await asyncio.create_subprocess_exec(
            self._openssl,
            *command.split(),
            cwd=self._folder,
            stdin=pipe,
            stdout=pipe,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            assert server.stdout is not None
            while not (line := await server.stdout.readline()).startswith(b"ACCEPT"):
                assert line, "openssl s_server does not listen"
            yield server, int(line.rpartition(b":")[2])
        finally:
            server.kill()
            await server.communicate()

    def _run(self, command: str) -> None:
        subprocess.run([self._openssl, *command.split()], cwd=self._folder, check=True, capture_output=True)
