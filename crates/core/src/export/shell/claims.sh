# ---- Claims: what must be true after the last step.
claims=0
wrong=0

# A claim: what it is about, what must be there, the command that shows it.
must_be() {
    local what=$1 expected=$2 found
    shift 2
    found=$("$@" 2>&1) || [ "$1" != told ] || {
        echo "$found" >&2
        exit 2
    }
    claims=$((claims + 1))
    if [ "$found" = "$expected" ]; then
        echo "$what: $expected, as it must be"
    else
        echo "$what: expected $expected, found $found: WRONG"
        wrong=$((wrong + 1))
    fi
}

kind_of() { stat -c %A -- "$1" | cut -c1; }
mode_of() {
    local mode
    mode=$(stat -c %a -- "$1") && printf '0%03o' "0$mode"
}
device_of() {
    local device
    device=$(stat -c '0x%t 0x%T' -- "$1") && printf '%d:%d' $device
}
same_file() { if [ "$(stat -c %d:%i -- "$1")" = "$(stat -c %d:%i -- "$2")" ]; then echo yes; else echo no; fi; }

# Bytes of a file in hexadecimal: path, offset, length.
bytes_of() {
    local hex
    hex=$(tail -c "+$(($2 + 1))" -- "$1" | head -c "$3" | od -An -v -tx1 -w"$3")
    hex=${hex# }
    echo "${hex:-nothing}"
}

