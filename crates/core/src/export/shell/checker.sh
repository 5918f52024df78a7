# Unmounts, checks and mounts again by the command in CHECK, with nothing open.
check_disk() {
    local number
    for number in "${!slot[@]}"; do close_slot "$number"; done
    [ -z "${to_helper-}" ] || told 'leave()' >/dev/null
    cd / || exit 2
    (
        [ -z "${to_helper-}" ] || exec {to_helper}>&- {from_helper}<&-
        eval "$CHECK"
    ) >&2
    checked=$?
    if [ "$checked" -eq 0 ]; then checked=clean; else checked="exit code $checked"; fi
    cd -- "$directory" || exit 2
    [ -z "${to_helper-}" ] || told 'come_back()' >/dev/null
}

