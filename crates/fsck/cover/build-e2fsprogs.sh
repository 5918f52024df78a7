#!/bin/sh
# Builds e2fsck from Debian's source with the compiler's hooks: build-e2fsprogs.sh RUNTIME.c DIRECTORY
# The result is DIRECTORY/e2fsck. Needs clang and make, and apt with dpkg-dev for the source, unless it is
# unpacked in DIRECTORY/source.
set -e
runtime=$(realpath "$1")
mkdir -p "$2"
cd "$2"
if [ ! -d source ]; then
  # The lists of sources are fetched into a directory of their own: nothing of the system changes.
  mkdir -p apt/parts apt/lists/partial
  for list in /etc/apt/sources.list.d/*.sources; do
    sed 's/^Types:.*/Types: deb-src/' "$list" > apt/parts/"${list##*/}"
  done
  sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > apt/parts/sources.list 2>/dev/null || true
  set -- -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/apt/parts" \
    -o Dir::State::lists="$PWD/apt/lists" -o APT::Sandbox::User=root
  apt-get "$@" -qq update
  apt-get "$@" -qq --download-only source e2fsprogs
  dpkg-source -x e2fsprogs_*.dsc source
fi
# The runtime itself is not instrumented.
clang -O2 -fPIC -c "$runtime" -o runtime.o
cd source
if [ ! -f Makefile ]; then
  ./configure --quiet --disable-nls --disable-uuidd --disable-fuse2fs --disable-defrag \
    CC=clang CFLAGS="-O1 -g -fsanitize-coverage=trace-pc-guard,trace-cmp -Wno-everything" \
    LDFLAGS="$(realpath ../runtime.o)" > ../configure.log 2>&1
fi
make -j2 libs > ../make.log 2>&1
make -C e2fsck e2fsck >> ../make.log 2>&1
cp e2fsck/e2fsck ..
