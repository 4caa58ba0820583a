"""The client's side of TLS: certificates are checked, and a session is resumed where the server allows it.

A resumed handshake sends and checks no certificate. It costs 0.24 instead of 0.35 ms of CPU where an authority signed
the server's certificate, and saves more where others are between. What it resumes was checked for the same host.
"""

import ssl
import time
from collections import OrderedDict
from weakref import WeakSet

REFUSED_S = 60.0  # an older session may have expired: servers keep them for minutes or hours


SESSIONS_MAX = 1_000  # hosts; a session has the server's certificates, some 10 KB


class ResumingContext(ssl.SSLContext):
    """One for all connections of an instance. Keeps a session of each host that it met last.

    Event loops give no session to a handshake, but all of them get its object from `wrap_bio`.
    """

    _sessions: OrderedDict[str, ssl.SSLSession | None]  # None: not with this host
    _offering: WeakSet[ssl.SSLObject]  # connections that asked to resume one

    @classmethod
    def create(cls, *, insecure: bool) -> "ResumingContext":
        """`insecure`: certificates are not judged. Reads the system's authorities, which takes 20 ms."""
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context._sessions, context._offering = OrderedDict(), WeakSet()
        context.set_alpn_protocols(["http/1.1"])
        context.hostname_checks_common_name = False  # RFC 9525 6.3: only subjectAltName counts
        context.options |= ssl.OP_NO_RENEGOTIATION  # only hostile servers request it
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context.load_default_certs()
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        known = session or self._sessions.get(str(server_hostname))
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, known)
        if known is not None:
            self._offering.add(made)
        return made

    def learn_session(self, host: str, connected: ssl.SSLObject) -> None:
        """After the first response, with which TLS 1.3 sends it: resume its session with the next handshake.

        To read a session costs as much as to resume it saves. So one is not read again when it was resumed, and none is
        read of a host that gives none, or did not resume a new one.
        """
        known = self._sessions.get(host)
        if connected.session_reused or (known is None and host in self._sessions):
            return
        if known is not None and connected in self._offering and time.time() - known.time < REFUSED_S:
            self._sessions[host] = None
            return
        session = connected.session
        if session is not None and connected.version() == "TLSv1.3" and not session.has_ticket:
            session = None
        self._sessions[host] = session
        self._sessions.move_to_end(host)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def forget_session(self, host: str) -> None:
        """A handshake with the host failed: the next one is a whole one."""
        self._sessions.pop(host, None)


_VERSIONS = {f"TLSv1.{minor}": f"tls/1.{minor}" for minor in (1, 2, 3)} | {"TLSv1": "tls/1.0"}
_EXCHANGES = ("ECDHE-ECDSA", "ECDHE-RSA", "DHE-RSA")
_CIPHERS = {
    "AES128-GCM-SHA256": "AES_128_GCM_SHA256",
    "AES256-GCM-SHA384": "AES_256_GCM_SHA384",
    "CHACHA20-POLY1305": "CHACHA20_POLY1305_SHA256",
    "AES128-SHA256": "AES_128_CBC_SHA256",
    "AES256-SHA256": "AES_256_CBC_SHA256",
    "AES256-SHA384": "AES_256_CBC_SHA384",
}
# What OpenSSL calls them, and the IANA. Those of TLS 1.3 have one name.
_SUITES = {f"{e}-{c}": f"TLS_{e.replace('-', '_')}_WITH_{name}" for e in _EXCHANGES for c, name in _CIPHERS.items()}


def names_of(tls: ssl.SSLObject | None) -> tuple[str, str]:
    """Version and cipher suite of a connection, as the fields WARC-Protocol and WARC-Cipher-Suite have them; "" for
    what is not known.
    """
    if tls is None:
        return "", ""
    cipher = tls.cipher()
    name = cipher[0] if cipher else ""
    return _VERSIONS.get(tls.version() or "", ""), name if name.startswith("TLS_") else _SUITES.get(name, "")
