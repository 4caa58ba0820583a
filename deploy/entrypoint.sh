#!/bin/sh
# The first process of a container: runs `crawler` with the arguments of the container.
#
# `crawler run`, `crawl` and `serve` get TERM when the container is stopped, or on Ctrl-C, and their exit code is that
# of the container. After 2 (settings) and 4 (conflict) a restart does not help: then the container stays until it is
# stopped, so that a restart policy does not repeat them, and its health check fails. All other commands are run alone.
set -u
held=${TMPDIR:-/tmp}/crawler.held  # healthcheck.py looks for it

case ${1:-} in
    run | crawl | serve) ;;
    *) exec crawler "$@" ;;
esac

child='' stopped='' forwarded='' interrupted=''
stop() {
    stopped=yes interrupted=yes
    [ -z "$child" ] || { forwarded=yes && kill -TERM "$child" 2>/dev/null; }
}
trap stop TERM INT

rm -f "$held"
exec 3<&0  # a process in the background would have an empty standard input
crawler "$@" <&3 3<&- &
child=$!
exec 3<&-
[ -z "$stopped" ] || [ -n "$forwarded" ] || kill -TERM "$child" 2>/dev/null  # it came before the number was known

# A signal ends `wait` early. 127: the process was waited for already.
code=''
while :; do
    interrupted=''
    wait "$child"
    now=$?
    [ "$now" != 127 ] || break
    code=$now
    [ -n "$interrupted" ] || break
done
code=${code:-127}

case $code in
    2 | 4)
        if [ -z "$stopped" ]; then
            echo "crawler: exit code $code: a restart does not help; correct the cause, then restart this container" >&2
            echo "$code" >"$held" || true
            while [ -z "$stopped" ]; do
                sleep 3600 &
                child=$!
                wait "$child"
            done
        fi
        ;;
esac
exit "$code"
