#!/bin/sh
# Gathers what this node says of its GPUs, NICs and PCI tree into one small tarball for `rackyard topo discover`.
#
#   sh collect.sh [--full] [FOLDER]
#
# Plain POSIX sh; no Python, no root. It only reads, and writes nothing but the tarball (into FOLDER, or where it is
# started). --full adds the long logs: nvidia-smi -q, nvidia-smi -q -x and lspci. SYSFS_ROOT and PROC_ROOT stand in for
# /sys and /proc. Prints a line for each source, then the path of the tarball.
set -u
LC_ALL=C
export LC_ALL

full=
folder=
for word in "$@"; do
    case $word in
        --full) full=1 ;;
        -h | --help) echo "usage: sh collect.sh [--full] [FOLDER]"; exit 0 ;;
        -*) echo "collect.sh: unknown option $word; usage: sh collect.sh [--full] [FOLDER]" >&2; exit 2 ;;
        *) folder=$word ;;
    esac
done
folder=$(cd "${folder:-.}" 2>/dev/null && pwd) || { echo "collect.sh: there is no folder ${folder:-.}" >&2; exit 2; }
[ -w "$folder" ] || { echo "collect.sh: can't write into $folder" >&2; exit 1; }

sys=$(cd "${SYSFS_ROOT:-/sys}" 2>/dev/null && pwd -P) || sys=/nonexistent
proc=${PROC_ROOT:-/proc}
tab=$(printf '\t')

# get FILE: the first line of FILE in $got, empty when it can't be read. No process is started.
get() {
    got=
    [ -r "$1" ] && { IFS= read -r got < "$1"; } 2>/dev/null
    case $got in *"$tab"*) got= ;; esac
    :
}

get "$proc/sys/kernel/hostname"
host=${got:-$(uname -n)}
case $host in '' | *[!A-Za-z0-9._-]*) host=unnamed ;; esac
now=$(date -u +%Y%m%dT%H%M%SZ)
name=rackyard-$host-$now
work=${TMPDIR:-/tmp}/$name.$$
mkdir -m 700 "$work" || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
printf 'rackyard-collect 1\nhost=%s\ntime=%s\n' "$host" "$now" > "$work/meta"

# say VERDICT SOURCE [WHY]: one line on the terminal and one in meta.
say() {
    printf '%-10s %s%s\n' "$1" "$2" "${3:+: $3}"
    printf '%s %s%s\n' "$1" "$2" "${3:+: $3}" >> "$work/meta"
}

limit=
command -v timeout > /dev/null 2>&1 && limit='timeout 60'

# take FILE COMMAND…: what COMMAND prints, as FILE. False when it refused; its last words are then in $why.
take() {
    file=$1
    shift
    command -v "$1" > /dev/null 2>&1 || { say 'not there' "$*"; return 1; }
    $limit "$@" > "$work/$file" 2> "$work/.why" < /dev/null
    rc=$?
    if [ "$rc" -eq 0 ] && [ -s "$work/$file" ]; then
        say got "$*"
        return 0
    fi
    get "$work/$file"
    why=$got
    get "$work/.why"
    why=${why:-${got:-exit code $rc}}
    return 1
}

# --- nvidia-smi -----------------------------------------------------------------------------------------------------

basic=index,uuid,name,pci.bus_id,memory.total,driver_version,vbios_version,serial
basic=$basic,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max
fabric=fabric.state,fabric.status,fabric.cliqueId,fabric.clusterUuid
platform=platform.chassis_serial_number,platform.slot_number,platform.tray_index
platform=$platform,platform.host_id,platform.module_id,platform.gpu_fabric_guid

# refused COMMAND…: keep the words of a nvidia-smi that could not reach a GPU, they are a finding; drop the rest.
refused() {
    say refused "$*" "$why"
    case $why in
        'Unable to determine the device handle'* | 'No devices were found'* | 'NVIDIA-SMI has failed'*) ;;
        *) rm -f "$work/$file" ;;
    esac
}

if ! command -v nvidia-smi > /dev/null 2>&1; then
    say 'not there' nvidia-smi
else
    asked=
    if take query.csv nvidia-smi --query-gpu=$basic,$fabric,$platform --format=csv; then
        :
    else
        case $why in
            *'not a valid field'*)
                rm -f "$work/query.csv"
                say refused 'nvidia-smi --query-gpu (fabric, platform)' "$why"
                take query.csv nvidia-smi --query-gpu=$basic --format=csv || refused nvidia-smi --query-gpu
                take smi-q.txt nvidia-smi -q || refused nvidia-smi -q
                asked=1
                ;;
            *) refused nvidia-smi --query-gpu ;;
        esac
    fi
    take nvlink.txt nvidia-smi nvlink -s || refused nvidia-smi nvlink -s
    take topo.txt nvidia-smi topo -m || refused nvidia-smi topo -m
    if [ "$full" ]; then
        [ "$asked" ] || take smi-q.txt nvidia-smi -q || refused nvidia-smi -q
        take smi-q.xml nvidia-smi -q -x || refused nvidia-smi -q -x
    fi
fi
[ "$full" ] && { take lspci.txt lspci -D -nn || [ ! -e "$work/lspci.txt" ] || refused lspci; }

# --- sysfs: one row a thing, see rackyard/fabric/readers/sysfs_table.py --------------------------------------------------

table=$work/sysfs.tsv
printf '#rackyard-sysfs 1\n' > "$table"

vendor= family= model=
if [ -r "$proc/cpuinfo" ]; then
    while IFS= read -r line; do
        case $line in
            '') break ;;
            vendor_id*:*) vendor=${line#*: } ;;
            'cpu family'*:*) family=${line#*: } ;;
            model[!\ ]*:*) model=${line#*: } ;;
        esac
    done < "$proc/cpuinfo"
fi
get "$proc/sys/kernel/osrelease"
kernel=${got:-$(uname -r)}
get "$sys/class/dmi/id/product_name"
printf 'host\t%s\t%s\t%s\t%s\t%s\t%s\n' "$kernel" "$got" "$(uname -m)" "$vendor" "$family" "$model" >> "$table"

count=0
for path in "$sys"/devices/system/node/node*; do
    get "$path/cpulist"
    [ "$got" ] || continue
    printf 'cpu\t%s\t%s\n' "${path##*/node}" "$got" >> "$table"
    count=$((count + 1))
done
[ $count -gt 0 ] && say got "CPUs of $count NUMA nodes" || say 'not there' 'CPUs of NUMA nodes'

# bdf_in PATH: the last PCI address in PATH, in $bdf.
bdf_in() {
    bdf=
    rest=$1
    while [ "$rest" ]; do
        case ${rest##*/} in
            [0-9a-f]*[0-9a-f]:[0-9a-f][0-9a-f]:[0-9a-f][0-9a-f].[0-7]) bdf=${rest##*/}; return ;;
        esac
        rest=${rest%/*}
    done
}

# pci_rows PATH: a row for each function on PATH that has none yet, the one at the top first.
seen=' '
functions=0
pci_rows() {
    above=
    at=$sys
    rest=${1#"$sys"/}/
    while [ "$rest" ]; do
        part=${rest%%/*}
        rest=${rest#*/}
        at=$at/$part
        case $part in
            [0-9a-f]*[0-9a-f]:[0-9a-f][0-9a-f]:[0-9a-f][0-9a-f].[0-7]) ;;
            *) continue ;;
        esac
        case $seen in
            *" $part "*) ;;
            *)
                seen="$seen$part "
                functions=$((functions + 1))
                row="pci$tab$part$tab$above"
                for key in numa_node class vendor device subsystem_vendor subsystem_device \
                    current_link_speed max_link_speed current_link_width max_link_width; do
                    get "$at/$key"
                    row=$row$tab$got
                done
                printf '%s\n' "$row" >> "$table"
                ;;
        esac
        above=$part
    done
}

here=$PWD
for path in "$sys"/bus/pci/devices/*; do
    get "$path/class"
    class=$got
    get "$path/vendor"
    case $class-$got in
        0x03*-* | 0x02*-* | 0x0108*-* | 0x0680*-0x10de | 0x0801*-0x15b3) ;; # GPUs, NICs, NVMe, NVSwitches, CX-8 data direct
        *) continue ;;
    esac
    cd -P "$path" 2> /dev/null && pci_rows "$PWD"
done
[ $functions -gt 0 ] && say got "PCI: $functions functions" || say 'not there' 'PCI: no GPU, NIC, NVMe or NVSwitch'

count=0
for path in "$sys"/class/net/*; do
    cd -P "$path" 2> /dev/null || continue
    bdf_in "$PWD"
    [ "$bdf" ] || { cd -P "$path/device" 2> /dev/null && bdf_in "$PWD"; }
    [ "$bdf" ] || continue
    get "$path/dev_port"
    printf 'net\t%s\t%s\t%s\n' "${path##*/}" "$bdf" "$got" >> "$table"
    count=$((count + 1))
done
[ $count -gt 0 ] && say got "interfaces: $count" || say 'not there' 'interfaces on PCI'

count=0
for path in "$sys"/class/infiniband/*; do
    cd -P "$path/device" 2> /dev/null || cd -P "$path" 2> /dev/null || continue
    bdf_in "$PWD"
    device=
    get "$path/device/numa_node"
    numa=$got
    for key in node_guid board_id hca_type fw_ver; do
        get "$path/$key"
        device=$device$tab$got
    done
    for port in "$path"/ports/*; do
        [ -d "$port" ] || continue
        row="ib$tab${path##*/}$tab${port##*/}$tab$bdf$tab$numa$device"
        for key in rate state phys_state link_layer; do
            get "$port/$key"
            row=$row$tab$got
        done
        printf '%s\n' "$row" >> "$table"
        count=$((count + 1))
    done
done
cd "$here" || exit 1
[ $count -gt 0 ] && say got "RDMA ports: $count" || say 'not there' 'RDMA devices'

# --- LLDP -------------------------------------------------------------------------------------------------------------

if command -v lldpctl > /dev/null 2>&1; then
    take lldp.json lldpctl -f json || { say refused lldpctl "$why"; rm -f "$work/lldp.json"; }
else
    say 'not there' lldpctl
fi

# --- the tarball ------------------------------------------------------------------------------------------------------

rm -f "$work/.why"
cd "$work" || exit 1
if ! command -v tar > /dev/null 2>&1; then
    out=$folder/$name
    mkdir "$out" && cp ./* "$out/" || exit 1
elif command -v gzip > /dev/null 2>&1; then
    out=$folder/$name.tar.gz
    tar -cf "$work/.tar" -- * && gzip -c "$work/.tar" > "$out" || { rm -f "$out"; exit 1; }
else
    out=$folder/$name.tar
    tar -cf "$out" -- * || { rm -f "$out"; exit 1; }
fi
printf '%s\n' "$out"
