# shellcheck shell=bash
# The network interface of several nodes: HCCL, gloo and tensorpipe must take the same one, and left
# alone each chooses by rules of its own.

# address_of <host>: IPv4 where there is one, since HCCL takes that family by default
address_of() {
  if [[ $1 == *:* || $1 =~ ^[0-9.]+$ ]]; then
    printf '%s' "$1"
  else
    { getent ahostsv4 "$1" || getent ahosts "$1" || true; } | awk 'NR == 1 { printf "%s", $1 }'
  fi
}

# interface_to <address>: the one that the route takes. The route to an address of this machine is the
# loopback device, so there it is the one that holds the address.
interface_to() {
  local device
  device=$(ip -o route get "$1" 2>/dev/null | sed -nE '1s/.* dev ([^ ]+).*/\1/p' || true)
  if [[ $device == lo ]]; then
    device=$(ip -o addr show to "$1" 2>/dev/null | awk 'NR == 1 { sub("@.*", "", $2); print $2 }' || true)
  fi
  if [[ $device != lo ]]; then
    printf '%s' "$device"
  fi
}

# choose_interface: exports the variables of all three that the caller did not set
choose_interface() {
  local address interface
  if ((NNODES == 1)) || [[ -n ${HCCL_SOCKET_IFNAME:-} && -n ${GLOO_SOCKET_IFNAME:-} && -n ${TP_SOCKET_IFNAME:-} ]]; then
    return
  fi
  if ! type -P ip >/dev/null; then
    note "note: the command ip is not there, so HCCL and gloo choose their network interfaces themselves"
    return
  fi
  address=$(address_of "$MASTER_ADDR")
  interface=$(interface_to "$address")
  if [[ -z $interface ]]; then
    note "note: no interface of this machine leads to '$MASTER_ADDR', so HCCL and gloo choose theirs themselves"
    return
  fi
  # Without = HCCL takes a prefix: eth1 would be eth10 as well. The others know exact names only.
  export HCCL_SOCKET_IFNAME="${HCCL_SOCKET_IFNAME:-=$interface}"
  export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-$interface}" TP_SOCKET_IFNAME="${TP_SOCKET_IFNAME:-$interface}"
  if [[ $address == *:* ]]; then
    export HCCL_SOCKET_FAMILY="${HCCL_SOCKET_FAMILY:-AF_INET6}"
  fi
  note "network: HCCL $HCCL_SOCKET_IFNAME, gloo $GLOO_SOCKET_IFNAME, tensorpipe $TP_SOCKET_IFNAME (route to $MASTER_ADDR)"
}
