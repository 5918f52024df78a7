# ---- The helper: a Python process that does what tools cannot, and has the open files.
coproc HELPER { exec python3 -I -u -c "$helper"; }
helper_pid=$HELPER_PID
exec {to_helper}>&"${HELPER[1]}" {from_helper}<&"${HELPER[0]}"
# When the script has ended nothing is in the directory any more.
trap 'rm -f "$messages"; kill "$helper_pid" 2>/dev/null; wait "$helper_pid" 2>/dev/null' EXIT

# Asks the helper for the value of an expression.
told() {
    local answer
    printf '%s\n' "$1" >&"$to_helper" && IFS= read -r answer <&"$from_helper" || {
        echo "the helper ended at: $1" >&2
        exit 2
    }
    printf '%s\n' "$answer"
}

# A step by the helper: number, expected answer (empty: not compared), call, expression.
exact() {
    local answer
    answer=$(told "$4") || exit 2
    echo "$1 $3 = $answer"
    if [ -n "$2" ] && [ "$answer" != "$2" ]; then
        echo "  DIFFERENT: expected $2"
        different=$((different + 1))
    fi
}

