# ---- The end.
# The subject had: something else.
must_be 'entry "d/f"' 'there, listed 1 times' told 'entry(b"d/f")'
# The subject had: something else.
must_be 'entry "d/x"' 'missing, listed 0 times' told 'entry(b"d/x")'
# The subject had: something else.
must_be 'kind of "d/f"' - kind_of d/f
# The subject had: something else.
must_be 'mode of "d"' 0755 mode_of d
# The subject had: something else.
must_be 'nlink of "g"' 2 stat -c %h -- g
# The subject had: something else.
must_be 'size of "g"' 5 stat -c %s -- g
# The subject had: something else.
must_be 'rdev of "g"' '0:0' device_of g
# The subject had: something else.
must_be 'target of "l"' d/f told 'target(b"l")'
# The subject had: something else.
must_be 'names in "d"' f told 'names_in(b"d")'
# The subject had: something else.
must_be '16 bytes at offset 2 of "d/f"' '00 e5 05' bytes_of d/f 2 16
# The subject had: something else.
must_be '16 bytes at offset 5 of "d/f"' nothing bytes_of d/f 5 16
# The subject had: something else.
must_be '16 bytes at offset 0 of xattr "user.a" of "d/f"' ENODATA told 'xattr(b"d/f", b"user.a", 0, 16)'
# The subject had: something else.
must_be 'whether "d/f" and "g" are one file' yes same_file d/f g
# The subject had: something else.
must_be 'mtime of "g"' 5.000000007 stat -c %.9Y -- g
# The subject had: something else.
must_be 'whether mtime of "l" is not before mtime of "d/f"' yes told 'in_order(b"d/f", "m", b"l", "m")'
# The subject had: something else.
must_be 'statfs f_namelen' 255 told 'space("name_bytes_max", 255, 0)'
# The subject had: something else.
must_be 'whether f_bsize stayed and f_bavail <= f_bfree <= f_blocks, f_ffree <= f_files' yes told 'space("consistent", 0, 0)'

echo "$different steps are DIFFERENT"
if [ "$different" -ne 0 ]; then
    echo 'The way to the end was another one: nothing is proved.'
    exit 2
fi
if [ "$wrong" -ne 0 ]; then
    echo "$wrong of $claims claims are WRONG: the bug is there"
    exit 1
fi
echo "0 of $claims claims are WRONG: the bug is not there"
