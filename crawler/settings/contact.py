"""The forms of what says who we are: fetch.contact, a web page or a mail address, and identity.agent, an origin.

A contact is in the User-Agent, and a mail address in the From header, too.

Inside of "(+...)", a parenthesis or a backslash would end the comment or change it (RFC 9110 5.6.5).
"""

WANTED = "expected a web page (https://example.com/bot) or a mail address (bot@example.com)"
_NOT_IN_COMMENTS = frozenset(' ()\\"<>,;')
_LENGTH_MAX = 500


def fault_of_contact(contact: str) -> str:
    """What is wrong with a contact; "" for a good one, or none."""
    if not contact:
        return ""
    if not (contact.isascii() and contact.isprintable()) or len(contact) > _LENGTH_MAX:
        return f"{WANTED}, in printable ASCII on one line"
    if not _NOT_IN_COMMENTS.isdisjoint(contact):
        return f"{WANTED}, without blanks, quotes, commas or parentheses"
    scheme, mark, rest = contact.partition("://")
    if mark:
        authority = rest.partition("/")[0].partition("?")[0].partition("#")[0]
        is_good = scheme.lower() in ("http", "https") and _is_authority(authority)
    else:
        local, _, domain = contact.rpartition("@")
        is_good = bool(local) and "@" not in local and ":" not in contact and "/" not in contact and _is_host(domain)
    return "" if is_good else WANTED


def fault_of_origin(url: str) -> str:
    """What is wrong with the origin of a directory of keys; "" for a good one."""
    scheme, _, authority = url.partition("://")
    is_good = url.isascii() and url == url.lower() and scheme == "https" and _is_authority(authority)
    return "" if is_good else "expected https://HOST in small letters, without a path"


def _is_authority(text: str) -> bool:
    """A host, with a port or without."""
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        return _is_host(text)
    return port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536 and _is_host(host)


def _is_host(host: str) -> bool:
    """A name of letters, digits, dots and hyphens, or an IPv6 address in brackets."""
    if host.startswith("["):
        return host.endswith("]") and len(host) > 4
    labels = host.split(".")
    return all(label and label.replace("-", "a").replace("_", "a").isalnum() for label in labels)
