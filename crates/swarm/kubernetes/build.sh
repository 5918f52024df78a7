#!/bin/sh
# Builds the programs of a Kubernetes cluster from Debian's source package, as an ordinary user:
#
#     build.sh DIRECTORY
#
# DIRECTORY then has kube-apiserver, kube-controller-manager, kube-scheduler and kubelet. What is there
# already is not built again. Debian 12 is the last release whose source package has the whole of
# Kubernetes (1.20.2), and no package brings the programs, which is why they are built.
#
# Needs: dpkg-dev, golang-go, rsync, make, and Debian's source packages within reach of apt. About
# 12 processor-minutes, 2 GB of disk while it builds.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
programs="kube-apiserver kube-controller-manager kube-scheduler kubelet"
missing=
for program in $programs; do
    [ -x "$out/$program" ] || missing="$missing cmd/$program"
done
[ -n "$missing" ] || exit 0

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

# apt with its own lists: the sources that the machine knows, as sources of source packages. Nothing of
# the machine's configuration is changed.
mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] && sed -n 's/^deb /deb-src /p' "$file" > "$work/parts/$(basename "$file" .list).list"
done
for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] && sed 's/^Types:.*/Types: deb-src/' "$file" > "$work/parts/$(basename "$file")"
done
from="-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$work/parts -o Dir::State::Lists=$work/lists -o Dir::Cache=$work/cache"
# shellcheck disable=SC2086 # the options are several words
apt-get -qq $from update
cd "$work"
# shellcheck disable=SC2086
apt-get -qq $from source --download-only kubernetes
dpkg-source --no-check -x kubernetes_*.dsc tree > /dev/null

# The vendored tree is older than modules: it builds below a GOPATH, with its own make rules, which also
# generate what the package does not contain.
mkdir -p gopath/src/k8s.io
mv tree gopath/src/k8s.io/kubernetes
cd gopath/src/k8s.io/kubernetes
export GOPATH="$work/gopath" GO111MODULE=off GOCACHE="$work/go-cache" GOFLAGS=
export KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_COMMIT=debian KUBE_GIT_TREE_STATE=archive
export GOMAXPROCS="${GOMAXPROCS:-$(nproc)}"
# All static: otherwise the kubelet is built with cgo, and everything that it uses a second time.
export KUBE_STATIC_OVERRIDES=kubelet
make -s WHAT="${missing# }" GOLDFLAGS="-s -w"
for program in $programs; do
    built=_output/local/bin/linux/$(go env GOARCH)/$program
    if [ -x "$built" ]; then
        cp "$built" "$out/$program.new" && mv "$out/$program.new" "$out/$program"
    fi
done
