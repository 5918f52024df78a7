# The script runs in a child: a call that never returns, or ends the process, is what was found.
if [ -z "${FATHOM_TRY-}" ]; then
    for ((try = 1; try <= tries; try++)); do
        FATHOM_TRY=$try bash "$0" "$@" &
        child=$!
        for ((waited = 0; waited < seconds * 10; waited++)); do
            kill -0 "$child" 2>/dev/null || break
            sleep 0.1
        done
        if kill -0 "$child" 2>/dev/null; then
            echo "no end within $seconds s: the bug is there"
            kill -KILL "$child"
            exit 1
        fi
        wait "$child" 2>/dev/null
        code=$?
        if [ "$code" -ge 128 ]; then
            echo "ended by signal $((code - 128)): the bug is there"
            exit 1
        fi
        [ "$code" -eq 0 ] || exit "$code"
    done
    exit 0
fi

