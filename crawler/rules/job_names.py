"""Names of jobs and of users. Pure."""

from crawler.errors import UsageError

NAME_MAX = 64


USER_SIGNS = "-_.@"  # an e-mail address is a name of a user, too


_SIGNS = "-_."


HOST_CHARS = 40  # of a host that is the beginning of a name


NAMES_TRIED = 100


def check_user(name: str) -> str:
    """The name of a user, as it came. Raises UsageError."""
    return _checked(name, "name of a user", USER_SIGNS)


def check_job(name: str) -> str:
    """The name of a job, as it came. Raises UsageError."""
    return _checked(name, "name of a job", _SIGNS)


def names_for_job(host: str, when: str) -> list[str]:
    """Names for a job that was given none, in the order in which they are tried: "docs.example-PT3H", then with -2."""
    plain = "".join(sign if sign.isascii() and (sign.isalnum() or sign in _SIGNS) else "-" for sign in host)
    base = f"{plain[:HOST_CHARS].strip(_SIGNS) or 'job'}-{when}"
    return [base, *(f"{base}-{n}" for n in range(2, NAMES_TRIED + 1))]


def _checked(name: str, what: str, signs: str) -> str:
    others = name.translate({ord(sign): None for sign in signs})
    if not (name.isascii() and others.isalnum() and len(name) <= NAME_MAX and name[0].isalnum()):
        listed = ", ".join(repr(sign) for sign in signs[:-1])
        raise UsageError(
            f"{name[:80]!r} is not a valid {what}: use up to {NAME_MAX} letters, digits, {listed} and {signs[-1]!r}, "
            "beginning with a letter or digit"
        )
    return name
