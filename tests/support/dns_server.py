"""The scriptable DNS server of crawler/testing/dns_server.py, under the name that our own tests use."""

from crawler.testing.dns_server import AAAA, NXDOMAIN, REFUSED, SERVFAIL, DnsAnswer, DnsServer, Table

__all__ = ["AAAA", "NXDOMAIN", "REFUSED", "SERVFAIL", "DnsAnswer", "DnsServer", "Table"]
