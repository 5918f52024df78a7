#!/bin/sh
# Unpacks Debian's source of a package: fetch-source.sh PACKAGE DIRECTORY. The result is DIRECTORY/source.
# The lists of sources are fetched into a directory of their own: nothing of the system changes.
set -e
package=$1
mkdir -p "$2"
cd "$2"
[ ! -d source ] || exit 0
mkdir -p apt/parts apt/lists/partial
for list in /etc/apt/sources.list.d/*.sources; do
  [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" > apt/parts/"${list##*/}"
done
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > apt/parts/sources.list 2>/dev/null || true
set -- -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/apt/parts" \
  -o Dir::State::lists="$PWD/apt/lists" -o APT::Sandbox::User=root
apt-get "$@" -qq update
apt-get "$@" -qq --download-only source "$package"
dpkg-source -x "$package"_*.dsc source
