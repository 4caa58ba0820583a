"""Who gives a command: the user of the operating system."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crawler.frontier.operator import Actor


def actor(via: str = "cli") -> "Actor":
    """The one who runs this process; by number where the user has no name, as in many containers.

    `via`: a value of `Via`.
    """
    import pwd

    from crawler.frontier.operator import Actor, Via

    try:
        who = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        who = f"uid {os.getuid()}"
    return Actor(who=who, via=Via(via))
