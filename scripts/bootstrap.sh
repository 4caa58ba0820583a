# Sourced by the scripts next to it: makes the project's virtual environment when it is missing or out of date.
# Needs POSIX sh, Python >= 3.11 and pip; writes only below the project's root, reads nothing from stdin.
#
#   root=...; . "$root/scripts/bootstrap.sh"; bootstrap          what is needed to crawl
#                                             bootstrap dev      the same and the tools to test
#
# The environment is $root/.venv, or of another Python's version $root/.venv-VERSION (`use_python 3.14`). A stamp in it records what it was made from, so a second start only compares. Packages
# have the versions of constraints.txt, which the tests ran with: a new release can't break an installation.

venv=$root/.venv

bootstrap() {
    extra=${1:-}
    [ "$(venv_key)" != "$(stamp_read)" ] || return 0
    mkdir -p "$root/.cache" 2>/dev/null || bootstrap_fail "can't write to $root"
    find_python
    exec 9>"$root/.cache/bootstrap.lock" || bootstrap_fail "can't write to $root/.cache"
    # An inherited descriptor shares its lock: the shell keeps it after this helper has ended.
    "$python" -I -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' || bootstrap_fail "can't lock $root/.cache/bootstrap.lock"
    [ "$(venv_key)" = "$(stamp_read)" ] || install_project
    exec 9>&-
}

# What the environment depends on: the declared dependencies and their versions, its place (scripts in it hold absolute
# paths) and the interpreter that its links lead to now.
venv_key() {
    [ -x "$venv/bin/python" ] || { echo none; return; }
    printf '%s %s %s' "$root" "$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum)" "$(readlink -f "$venv/bin/python")"
}

stamp_file() { printf '%s' "$venv/.installed${extra:+-$extra}"; }

stamp_read() { cat "$(stamp_file)" 2>/dev/null || echo missing; }

# Choose a version of Python, and an environment of its own. It comes from PATH, pyenv, or uv, which fetches it.
use_python() {
    for python in "python$1" "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$1".*/bin/python uv; do
        [ "$python" != uv ] || python=$(uv python install --quiet "$1" >&2 && uv python find "$1") 2>/dev/null || break
        "$python" -I -c "import sys; v = sys.version_info; sys.exit(v < (3, 11) or '%d.%d' % v[:2] != '$1')" 2>/dev/null || continue
        PYTHON=$python venv=$root/.venv-$1
        return
    done
    bootstrap_fail "Python $1 was not found (3.11 or newer is needed): install it, or uv (pip install uv), which fetches it"
}

find_python() {
    for python in ${PYTHON:+"$PYTHON"} python3 python3.11 python3.12 python3.13 python3.14 python; do
        "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
    done
    bootstrap_fail "Python 3.11 or newer is needed and was not found (set PYTHON to its path)"
}

install_project() {
    echo "${0##*/}: installing into $venv (once; takes about a minute) ..." >&2
    log=$root/.cache/bootstrap.log
    # Without a home, pip's cache goes to the project's.
    [ -n "${HOME:-}" ] || export PIP_CACHE_DIR="$root/.cache/pip"
    make_venv
    # The dev tools contain everything of the plain installation, so both stamps are valid afterwards.
    rm -f "$venv"/.installed*
    PIP_USER=0 pip_install --editable "$root${extra:+[$extra]}" >>"$log" 2>&1 9>&- </dev/null || {
        tail -n 5 "$log" >&2
        bootstrap_fail "installing failed; all of pip's output is in $log"
    }
    key=$(venv_key)
    printf '%s\n' "$key" >"$(stamp_file)"
    [ -z "$extra" ] || (extra='' && printf '%s\n' "$key" >"$(stamp_file)")
}

# Some systems ship Python without ensurepip: then the environment has no pip, and the outer pip installs into it.
make_venv() {
    : >"$log"
    [ -x "$venv/bin/python" ] && "$venv/bin/python" -I -c '' 2>/dev/null && return
    "$python" -I -m venv --clear "$venv" >>"$log" 2>&1 9>&- </dev/null && return
    "$python" -I -m venv --clear --without-pip "$venv" >>"$log" 2>&1 9>&- </dev/null ||
        bootstrap_fail "Python's venv module doesn't work: $(tail -n 1 "$log")"
    "$python" -I -m pip --version >>"$log" 2>&1 9>&- </dev/null ||
        bootstrap_fail "neither ensurepip nor pip is installed for $python (Debian, Ubuntu: apt install python3-venv)"
}

# By variables, constraints hold for the tools that build the package, too; the second one is for newer releases of pip.
# pip splits their values at blanks, so they name no folder: it runs in the project's root.
pip_install() (
    cd "$root" || exit 1
    export PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
    if "$venv/bin/python" -I -m pip --version >/dev/null 2>&1; then
        "$venv/bin/python" -I -m pip install --quiet --no-input --disable-pip-version-check "$@"
    else
        "$python" -I -m pip --python "$venv/bin/python" install --quiet --no-input --disable-pip-version-check "$@"
    fi
)

bootstrap_fail() {
    echo "${0##*/}: $1" >&2
    exit 1
}
