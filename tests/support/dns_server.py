"""The scriptable DNS server under the name by which our own tests know it: crawler/testing/names.py is the one copy."""

from crawler.testing.names import NXDOMAIN, REFUSED, SERVFAIL, Answer, DnsServer, Table

__all__ = ["NXDOMAIN", "REFUSED", "SERVFAIL", "Answer", "DnsServer", "Table"]
