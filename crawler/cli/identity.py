"""`crawler identity`: makes, shows and renews the key that requests are signed with."""

import argparse
import time

from crawler.cli.options import settings_of
from crawler.crawl.terms import permitted
from crawler.errors import UsageError
from crawler.terminal.output import out, say, show
from crawler.terminal.words import moment
from crawler.views.identity import (
    as_text,
    files_of,
    identity_view,
    make_key_file,
    renew_key_file,
    write_files,
)


def run_identity(arguments: argparse.Namespace) -> int:
    """Act on the key file. Raises UsageError."""
    if arguments.act is None:
        raise UsageError("identity: give an action: new, show or renew (see 'crawler identity --help')")
    settings = permitted(settings_of(arguments, in_folder=True))
    path = arguments.file or settings.identity.key_file
    if not path:
        raise UsageError(f"identity {arguments.act}: name the key file, or set identity.key_file")
    now_s = time.time()
    if arguments.act == "new":
        key = make_key_file(path, now_s)
        out(f"{path} has the new key {key.kid}")
        say("Keep it outside of crawl folders, and copy it to each machine that crawls. What to publish:")
        say(f"  crawler identity show {path} --set identity.agent=https://HOST --to FOLDER")
    elif arguments.act == "renew":
        old, new = renew_key_file(path, now_s, after_s=arguments.after)
        out(f"{path} has the new key {new.kid}, which signs from {moment(new.nbf)}")
        out(f"the old key {old.kid} stays in the directory until {moment(old.exp)}")
        say(f"Publish the directory again now, and copy {path} to each machine that crawls before {moment(new.nbf)}.")
    else:
        view = identity_view(settings, path, now_s)
        if arguments.to:
            for written in write_files(arguments.to, files_of(view, purpose=arguments.purpose)):
                out(str(written))
        else:
            show(view, as_text(view), as_json=arguments.json)
    return 0
