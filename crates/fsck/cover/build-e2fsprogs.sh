#!/bin/sh
# Builds e2fsck from Debian's source with the compiler's hooks: build-e2fsprogs.sh RUNTIME.c DIRECTORY
# The result is DIRECTORY/e2fsck. Needs clang and make, and apt with dpkg-dev for the source, unless it is
# unpacked in DIRECTORY/source.
set -e
runtime=$(realpath "$1")
mkdir -p "$2"
cd "$2"
sh "$(dirname "$runtime")/fetch-source.sh" e2fsprogs "$PWD"
# The runtime itself is not instrumented.
clang -O2 -fPIC -c "$runtime" -o runtime.o
cd source
# What failed is the last line that is printed: with it the build is reported as failed.
failed() { echo "$1: $(grep -i error "../$1" | head -n 1)" >&2; exit 1; }
# Hooks of our own are linked in, so clang's run-time library (libclang-rt-dev, which Debian's clang only
# recommends) is not needed. Without threads, because two that read bitmaps at the same time take their branches
# in another order in every run.
if [ ! -f Makefile ]; then
  ./configure --quiet --disable-nls --disable-uuidd --disable-fuse2fs --disable-defrag \
    --without-pthread \
    CC=clang CFLAGS="-O1 -g -fsanitize-coverage=trace-pc-guard,trace-cmp -Wno-everything" \
    LDFLAGS="-fno-sanitize-link-runtime $(realpath ../runtime.o)" > ../configure.log 2>&1 \
    || failed configure.log
fi
make -j2 libs > ../make.log 2>&1 || failed make.log
make -C e2fsck e2fsck >> ../make.log 2>&1 || failed make.log
cp e2fsck/e2fsck ..
