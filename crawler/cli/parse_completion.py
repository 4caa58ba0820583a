"""Options of `crawler completion`."""

import argparse

SHELLS = ("bash", "zsh", "fish")


COMPLETION_EPILOG = """\
examples:
  crawler completion bash > ~/.local/share/bash-completion/completions/crawler
  crawler completion zsh > "${fpath[1]}/_crawler"
  crawler completion fish > ~/.config/fish/completions/crawler.fish

Shells that start afterwards complete 'crawler'. Print the script again after an upgrade. In bash,
the first line needs the package bash-completion; without it, add this to ~/.bashrc:
  source <(crawler completion bash)
"""


def add_completion(p: argparse.ArgumentParser) -> None:
    p.description = "Print a script that completes commands, options, fixed values and files in your shell."
    p.epilog = COMPLETION_EPILOG
    p.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    p.set_defaults(run="crawler.cli.completion:run_completion")
