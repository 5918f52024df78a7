#!/bin/sh
# A Kubernetes cluster of several nodes on this machine, as root, without systemd and without a registry:
#
#   cluster.sh start DIR PROGRAMS [NODES]   starts it; PROGRAMS is the directory that build.sh filled
#   cluster.sh image DIR ARCHIVE            gives an image (fathom swarm image) to all nodes
#   cluster.sh run DIR COMMAND…             runs a command in the network of the cluster, with KUBECONFIG
#   cluster.sh get DIR PATH                 what the API says of PATH (/apis/batch/v1/jobs), as JSON
#   cluster.sh node DIR NAME                adds a node (n4, …), or starts one that was killed again
#   cluster.sh kill DIR NAME                ends a node as a power failure would
#   cluster.sh stop DIR                     ends everything
#
# Needs Debian's etcd-server, containerd, runc, containernetworking-plugins, iproute2, openssl, gcc.
#
# The whole cluster is one network namespace with a bridge, and one process namespace: its first process
# ends it, and nobody else reaches it. A node is a namespace of each kind below that, so that it has an
# address, processes and mounts of its own, and killing its first process is the loss of a machine.
set -eu
action=$1
dir=$(mkdir -p "$2" && cd "$2" && pwd)
self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
net=10.77.0
api=https://$net.1:6443

wait_for() { # SECONDS WHAT COMMAND…
    seconds=$1 what=$2
    shift 2
    for _ in $(seq 1 $((seconds * 5))); do
        if "$@" > /dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    echo "$what: not within $seconds s, see $dir/log" >&2
    return 1
}

token() { sed -n "s/^\([^,]*\),$1,.*/\1/p" "$dir/tokens.csv"; }

kubeconfig() { # USER
    cat > "$dir/$1.kubeconfig" <<CONF
apiVersion: v1
kind: Config
clusters: [{name: fathom, cluster: {server: "$api", insecure-skip-tls-verify: true}}]
users: [{name: user, user: {token: "$(token "$2")"}}]
contexts: [{name: fathom, context: {cluster: fathom, user: user}}]
current-context: fathom
CONF
}

# Asks the API server as the administrator. It would answer curl in indented JSON, and the library that indents
# (reflect2 before 1.0.2) faults in a program that was compiled by Go 1.18 or later: so curl has another name.
asked() { # PATH
    curl -sfk -A fathom -H "Authorization: Bearer $(token admin)" "$api$1"
}

# The first process of the cluster.
control_plane() {
    ip link set lo up
    ip link add br0 type bridge
    ip addr add "$net.1/24" dev br0
    ip link set br0 up
    etcd --data-dir "$dir/etcd" --listen-client-urls http://127.0.0.1:2379 --log-level error \
        --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
        --unsafe-no-fsync > "$dir/log/etcd" 2>&1 &
    "$programs/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --bind-address="$net.1" \
        --advertise-address="$net.1" --secure-port=6443 --cert-dir="$dir/certificates" \
        --service-cluster-ip-range=10.96.0.0/16 --token-auth-file="$dir/tokens.csv" \
        --authorization-mode=Node,RBAC --allow-privileged=true \
        --service-account-key-file="$dir/accounts.key" --service-account-issuer="$api" \
        --service-account-signing-key-file="$dir/accounts.key" \
        --kubelet-preferred-address-types=InternalIP > "$dir/log/apiserver" 2>&1 &
    wait_for 90 "the API server" asked /readyz
    "$programs/kube-controller-manager" --kubeconfig="$dir/admin.kubeconfig" --port=0 \
        --leader-elect=false --service-account-private-key-file="$dir/accounts.key" \
        --root-ca-file="$dir/certificates/apiserver.crt" \
        --node-monitor-period=2s --node-monitor-grace-period=16s \
        > "$dir/log/controller-manager" 2>&1 &
    "$programs/kube-scheduler" --kubeconfig="$dir/admin.kubeconfig" --port=0 \
        --leader-elect=false > "$dir/log/scheduler" 2>&1 &
    touch "$dir/up"
    # The first process of a process namespace is the parent of all that lose theirs.
    while :; do wait || true; sleep 1; done
}

# The first process of a node.
node() {
    name=$1 home=$dir/nodes/$1
    wait_for 20 "the network of $name" ip link show eth0
    ip link set lo up
    ip addr add "$net.$((10 + ${name#n}))/24" dev eth0
    ip link set eth0 up
    hostname "$name"
    mkdir -p "$home/log" "$home/kubelet" "$home/cni"
    # Kubelets of one machine would collect each other's logs.
    mount --bind "$home/log" /var/log
    mount -t tmpfs none /run
    cat > "$home/cni/10-fathom.conflist" <<CONF
{"cniVersion": "0.4.0", "name": "fathom", "plugins": [{"type": "bridge", "bridge": "cni0",
 "ipam": {"type": "host-local", "dataDir": "$home/addresses", "ranges": [[{"subnet": "10.78.0.0/16"}]]}}]}
CONF
    # An oom_score_adj below that of the parent needs a capability that a machine may not have.
    cat > "$home/containerd.toml" <<CONF
version = 2
root = "$home/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:fathom"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$home/cni"
CONF
    containerd --config "$home/containerd.toml" > "$home/log/containerd" 2>&1 &
    wait_for 30 "containerd of $name" ctr --address /run/containerd/containerd.sock version
    for archive in "$dir"/images/*.tar; do
        import "$archive"
    done
    cat > "$home/kubelet.yaml" <<CONF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupsPerQOS: false
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
failSwapOn: false
maxOpenFiles: 20000
nodeStatusUpdateFrequency: 2s
syncFrequency: 2s
evictionHard: {}
CONF
    "$programs/kubelet" --config="$home/kubelet.yaml" --kubeconfig="$dir/$name.kubeconfig" \
        --container-runtime=remote --container-runtime-endpoint=unix:///run/containerd/containerd.sock \
        --root-dir="$home/kubelet" --cert-dir="$home/certificates" --hostname-override="$name" \
        --node-ip="$net.$((10 + ${name#n}))" --runtime-cgroups=/ --kubelet-cgroups=/ \
        > "$home/log/kubelet" 2>&1 &
    while :; do wait || true; sleep 1; done
}

import() { # ARCHIVE, on a node
    ctr --address /run/containerd/containerd.sock --namespace k8s.io images import "$1" > /dev/null
}

# An image whose only program waits: the one that every pod begins with.
pause_image() {
    work=$(mktemp -d)
    mkdir -p "$work/layer"
    printf '#include <unistd.h>\nint main(void) { for (;;) pause(); }\n' > "$work/pause.c"
    cc -static -o "$work/layer/pause" "$work/pause.c"
    tar -C "$work/layer" -cf "$work/layer.tar" pause
    digest=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
    cat > "$work/config.json" <<CONF
{"architecture": "$(dpkg --print-architecture)", "os": "linux", "config": {"Entrypoint": ["/pause"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$digest"]}}
CONF
    echo '[{"Config": "config.json", "RepoTags": ["pause:fathom"], "Layers": ["layer.tar"]}]' \
        > "$work/manifest.json"
    tar -C "$work" -cf "$dir/images/pause.tar" manifest.json config.json layer.tar
    rm -rf "$work"
}

inside() { nsenter --target "$(cat "$dir/pid")" --net --pid --mount "$@"; }

# Starts a node from outside; it is a child of the cluster's process namespace.
start_node() {
    name=$1
    kubeconfig "$name" "system:node:$name"
    setsid nsenter --target "$(cat "$dir/pid")" --net --pid --mount \
        unshare --net --pid --mount --uts --fork --kill-child --mount-proc \
        "$self" node-inside "$dir" "$programs" "$name" > "$dir/log/$name" 2>&1 < /dev/null &
    echo $! > "$dir/nodes/$name.pid"
    # The first process of the node, as seen from here: the one that the commands above become.
    wait_for 20 "the first process of $name" first_process "$name"
    first=$(first_process "$name")
    inside ip link delete "to-$name" 2> /dev/null || true
    nsenter --target "$(cat "$dir/pid")" --net ip link add "to-$name" type veth peer name eth0 netns "$first"
    inside ip link set "to-$name" master br0 up
}

# The oldest: a shell that is about to start a program has the same words for a moment.
first_process() { pgrep -o -f "^/bin/sh $self node-inside $dir $programs $1\$"; }

case $action in
start)
    programs=$(cd "$3" && pwd) nodes=${4:-3}
    rm -f "$dir/up"
    mkdir -p "$dir/log" "$dir/nodes" "$dir/images" "$dir/certificates"
    echo "$programs" > "$dir/programs"
    random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
    {
        echo "$(random),admin,admin,system:masters"
        for n in $(seq 1 16); do echo "$(random),system:node:n$n,node$n,system:nodes"; done
    } > "$dir/tokens.csv"
    chmod 600 "$dir/tokens.csv"
    [ -f "$dir/accounts.key" ] || openssl genrsa -out "$dir/accounts.key" 2048 2> /dev/null
    kubeconfig admin admin
    pause_image
    setsid unshare --net --pid --mount --fork --kill-child --mount-proc \
        "$self" control-plane-inside "$dir" "$programs" > "$dir/log/control-plane" 2>&1 < /dev/null &
    wait_for 10 "the first process" pgrep -f "^/bin/sh $self control-plane-inside $dir $programs\$"
    pgrep -o -f "^/bin/sh $self control-plane-inside $dir $programs\$" > "$dir/pid"
    wait_for 120 "the control plane" test -e "$dir/up"
    for n in $(seq 1 "$nodes"); do start_node "n$n"; done
    for n in $(seq 1 "$nodes"); do "$self" ready "$dir" "n$n"; done
    echo "$self run $dir COMMAND"
    ;;
ready)
    wait_for 90 "$3" sh -c "'$self' get '$dir' /api/v1/nodes/$3 | grep -q '\"reason\":\"KubeletReady\"'"
    ;;
get)
    nsenter --target "$(cat "$dir/pid")" --net "$self" get-inside "$dir" "$3"
    ;;
run)
    shift 2
    KUBECONFIG="$dir/admin.kubeconfig" exec nsenter --target "$(cat "$dir/pid")" --net "$@"
    ;;
image)
    cp "$3" "$dir/images/$(basename "$3" .tar).tar"
    for pid in "$dir"/nodes/n*.pid; do
        first=$(programs=$(cat "$dir/programs") first_process "$(basename "$pid" .pid)") || continue
        nsenter --target "$first" --net --pid --mount "$self" import-inside "$dir" "$dir/images/$(basename "$3" .tar).tar"
    done
    ;;
node)
    programs=$(cat "$dir/programs")
    start_node "$3"
    "$self" ready "$dir" "$3"
    ;;
kill)
    programs=$(cat "$dir/programs")
    kill -9 "$(first_process "$3")"
    rm -f "$dir/nodes/$3.pid"
    ;;
stop)
    [ ! -f "$dir/pid" ] || kill -9 "$(cat "$dir/pid")" 2> /dev/null || true
    rm -f "$dir/pid" "$dir/up" "$dir"/nodes/*.pid
    ;;
control-plane-inside) programs=$3 && control_plane ;;
node-inside) programs=$3 && node "$4" ;;
import-inside) import "$3" ;;
get-inside) asked "$3" ;;
*)
    sed -n '2,11s/^# \{0,1\}//p' "$self" >&2
    exit 2
    ;;
esac
