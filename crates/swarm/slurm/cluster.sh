#!/bin/sh
# A Slurm cluster of several nodes on this machine, from Debian's packages (slurmctld slurmd slurm-client
# munge), as root, without systemd:
#
#   cluster.sh start DIR [NODES]   starts it; then: export SLURM_CONF=DIR/slurm.conf
#   cluster.sh kill DIR NODE       ends a node as a power failure would (n1, n2, …)
#   cluster.sh node DIR NODE       starts a node again
#   cluster.sh add DIR NODE        adds one that the configuration does not name (n9); there can be one of these
#   cluster.sh stop DIR            ends everything
set -eu
action=$1 dir=$(mkdir -p "$2" && cd "$2" && pwd)

cpus=$(nproc) memory=$(awk '/MemTotal/ {print int($2 / 1024 / 4)}' /proc/meminfo)

node() {
    name=$1
    shift
    # A process namespace of its own: its end is the end of everything on it.
    setsid unshare --pid --fork --kill-child --mount-proc env SLURM_CONF="$dir/slurm.conf" \
        slurmd -D -N "$name" "$@" > "$dir/log/$name.out" 2>&1 < /dev/null &
    echo $! > "$dir/run/$name.pid"
}

wait_for_idle() { # NUMBER
    for _ in $(seq 1 60); do
        [ "$(sinfo --noheader --format=%T --Node 2> /dev/null | grep -Ec 'idle|mixed|allocated')" = "$1" ] && break
        sleep 0.5
    done
    sinfo
}

start() {
    nodes=$1
    mkdir -p "$dir/run" "$dir/log" "$dir/state" && chmod 755 "$dir" "$dir/run"
    # Clusters that are started at the same time have processes with neighbouring numbers, and each takes eight
    # ports: the controller, its nodes, and the last one for a node that is added.
    port=$((20000 + $$ % 1500 * 8))
    cat > "$dir/slurm.conf" <<CONF
ClusterName=fathom
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 7))
MaxNodeCount=16
TreeWidth=65533
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=$dir/run/munge.sock
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdTimeout=10
SlurmctldTimeout=15
InactiveLimit=0
KillWait=5
MinJobAge=600
ReturnToService=2
JobRequeue=1
MaxArraySize=10001
SchedulerParameters=sched_interval=2,batch_sched_delay=0
MpiDefault=none
NodeName=n[1-$nodes] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=$cpus RealMemory=$memory State=UNKNOWN
PartitionName=fathom Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    dd if=/dev/urandom of="$dir/munge.key" bs=1 count=1024 2> /dev/null
    chmod 400 "$dir/munge.key"
    munged --force --key-file="$dir/munge.key" --socket="$dir/run/munge.sock" --num-threads=2 \
        --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/run/munged.seed"
    export SLURM_CONF="$dir/slurm.conf"
    slurmctld -c
    for n in $(seq 1 "$nodes"); do node "n$n"; done
    wait_for_idle "$nodes"
    echo "export SLURM_CONF=$dir/slurm.conf"
}

end() { [ ! -f "$1" ] || { kill "-$2" "$(cat "$1")" 2> /dev/null || true; rm -f "$1"; }; }

case $action in
start) start "${3:-3}" ;;
node) node "$3" ;;
add)
    export SLURM_CONF="$dir/slurm.conf"
    nodes=$(sinfo --noheader --format=%N --Node | wc -l)
    # It says itself what it has; its port cannot be said, so that it is that of the whole cluster.
    node "$3" -Z --conf "CPUs=$cpus RealMemory=$memory"
    wait_for_idle $((nodes + 1))
    ;;
kill) kill -9 "$(cat "$dir/run/$3.pid")" ;;
stop)
    for pid in "$dir"/run/n*.pid; do end "$pid" KILL; done
    end "$dir/run/slurmctld.pid" TERM
    end "$dir/run/munged.pid" TERM
    ;;
*) sed -n 2,10p "$0"; exit 2 ;;
esac
