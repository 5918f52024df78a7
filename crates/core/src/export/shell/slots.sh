# ---- Open files.
nobody=999 # a descriptor that is not open

# Opens a slot: number, redirection, path.
open_slot() {
    local fd
    close_slot "$1"
    case $2 in
    '<') exec {fd}<"$3" ;;
    '<>') exec {fd}<>"$3" ;;
    '>') exec {fd}>"$3" ;;
    '>>') exec {fd}>>"$3" ;;
    esac || return
    slot[$1]=$fd
}

close_slot() {
    local fd=${slot[$1]-}
    unset "slot[$1]"
    [ -z "$fd" ] || exec {fd}>&-
}

# The file of a slot by name: opened anew, with a position of its own.
fd() { echo "/proc/self/fd/${slot[$1]-$nobody}"; }

read_slot() { run dd bs="$2" count=1 status=none <&"${slot[$1]-$nobody}"; }
pread_slot() { dd if="$(fd "$1")" iflag=skip_bytes skip="$2" bs="$3" count=1 status=none; }
write_slot() { pattern "$2" "$3" | run dd bs="$3" count=1 iflag=fullblock status=none >&"${slot[$1]-$nobody}"; }
pwrite_slot() {
    pattern "$3" "$4" |
        dd of="$(fd "$1")" oflag=seek_bytes seek="$2" bs="$4" count=1 iflag=fullblock conv=notrunc status=none
}

