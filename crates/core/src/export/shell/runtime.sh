set -u
different=0 # steps that answered something else than expected
slot=() # descriptors of the open files
as=()   # command that acts as another user

directory=${1-}
if [ -z "$directory" ]; then
    directory=$(mktemp -d "${TMPDIR:-/tmp}/fathom-XXXXXX") && chmod 0755 "$directory" || exit 2
    echo "in $directory"
fi
cd -- "$directory" || exit 2
directory=$PWD
messages=$(mktemp) || exit 2
trap 'rm -f "$messages"' EXIT
umask 0022

# A step: number, expected outcome (ok, failed or any), call, command.
step() {
    local number=$1 expected=$2 call=$3 outcome=ok
    shift 3
    run "$@" >/dev/null 2>"$messages" || outcome=failed
    echo "$number $call = $outcome"
    if [ "$expected" != any ] && [ "$outcome" != "$expected" ]; then
        echo "  DIFFERENT: expected $expected $(cat "$messages")"
        different=$((different + 1))
    fi
}

# Programs run as the user of the last identity step; functions and builtins are the shell itself.
run() {
    if [ "$(type -t "$1")" = file ] && [ ${#as[@]} -gt 0 ]; then "${as[@]}" "$@"; else "$@"; fi
}

# Runs a command that creates a file so that the file gets this mode (less the umask).
with_mode() {
    local before result=0
    before=$(umask)
    umask "$(printf '%04o' $((0777 & (~0$1 | 0$before))))"
    run "${@:2}" || result=$?
    umask "$before"
    return "$result"
}

# Runs a command only if the path leads to a file: the tool would create it or be silent.
if_exists() { [ -e "$1" ] && run "${@:2}"; }

# The same for the name itself, a dangling symbolic link say.
if_named() { { [ -e "$1" ] || [ -L "$1" ]; } && run "${@:2}"; }

# Bytes made from a seed: splitmix64, little endian, no byte zero.
pattern() { words "$1" $((($2 + 7) / 8)) | head -c "$2"; }
words() {
    local -i i z
    local word text=
    for ((i = 0; i < $2; i++)); do
        z=$(($1 + i * 0x9e3779b97f4a7c15))
        z=$(((z ^ (z >> 30 & 0x3ffffffff)) * 0xbf58476d1ce4e5b9))
        z=$(((z ^ (z >> 27 & 0x1fffffffff)) * 0x94d049bb133111eb))
        z=$(((z ^ (z >> 31 & 0x1ffffffff)) | 0x0101010101010101))
        printf -v word '\\x%02x' $((z & 255)) $((z >> 8 & 255)) $((z >> 16 & 255)) \
            $((z >> 24 & 255)) $((z >> 32 & 255)) $((z >> 40 & 255)) $((z >> 48 & 255)) \
            $((z >> 56 & 255))
        text+=$word
        if ((i % 512 == 511)); then printf '%b' "$text" && text=; fi
    done
    printf '%b' "$text"
}

# Sets an extended attribute: path, name, seed and length of the value, options of setfattr.
set_xattr() { run setfattr "${@:5}" -n "$2" -v "0x$(pattern "$3" "$4" | od -An -v -tx1 | tr -d ' \n')" -- "$1"; }

# Modes (some of r, w, x, or e alone) of a path.
accessible() {
    local i
    for ((i = 0; i < ${#1}; i++)); do test "-${1:i:1}" "$2" || return; done
}

# Acts as another user: user, group, supplementary groups (with commas).
identity() {
    as=(setpriv --reuid="$1" --regid="$2")
    if [ -n "$3" ]; then as+=(--groups="$3"); else as+=(--clear-groups); fi
    [ "$1:$2:$3" != 0:0: ] || as=()
}

# Unmounts and mounts again by the command in REMOUNT, with nothing open.
remount() {
    local number
    for number in "${!slot[@]}"; do close_slot "$number"; done
    [ -z "${to_helper-}" ] || told 'leave()' >/dev/null
    cd / || exit 2
    (
        [ -z "${to_helper-}" ] || exec {to_helper}>&- {from_helper}<&-
        eval "$REMOUNT"
    ) >&2 || {
        echo 'the command in REMOUNT failed' >&2
        exit 2
    }
    cd -- "$directory" || exit 2
    [ -z "${to_helper-}" ] || told 'come_back()' >/dev/null
}

