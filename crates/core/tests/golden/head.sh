#!/bin/bash
# Written by fathom 0.1.0: 6 steps on dir:/tmp, compared with model.
#
# Run: bash repro.sh [DIRECTORY]   (an empty directory of the file system to test)
# In the end this is checked:
#   entry "d/f": must be there, listed 1 times; was something else.
#   entry "d/x": must be missing, listed 0 times; was something else.
#   kind of "d/f": must be -; was something else.
#   mode of "d": must be 0755; was something else.
#   nlink of "g": must be 2; was something else.
#   size of "g": must be 5; was something else.
#   rdev of "g": must be 0:0; was something else.
#   target of "l": must be d/f; was something else.
#   names in "d": must be f; was something else.
#   16 bytes at offset 2 of "d/f": must be 00 e5 05; was something else.
#   16 bytes at offset 5 of "d/f": must be nothing; was something else.
#   16 bytes at offset 0 of xattr "user.a" of "d/f": must be ENODATA; was something else.
#   whether "d/f" and "g" are one file: must be yes; was something else.
#   mtime of "g": must be 5.000000007; was something else.
#   whether mtime of "l" is not before mtime of "d/f": must be yes; was something else.
#   statfs f_namelen: must be 255; was something else.
#   whether f_bsize stayed and f_bavail <= f_bfree <= f_blocks, f_ffree <= f_files: must be yes; was something else.
# Exit code: 0 the bug is not there, 1 it is, 2 it cannot be told here.
