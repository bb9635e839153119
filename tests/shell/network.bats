#!/usr/bin/env bats
# One network interface for HCCL, gloo and tensorpipe, from the route to the master.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  with_everything
  export NNODES=2 NPUS_PER_NODE=8 NODE_RANK=1 MASTER_ADDR=10.0.0.6
  unset HCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME TP_SOCKET_IFNAME HCCL_SOCKET_FAMILY
  stub torchrun 'env | grep -E "_SOCKET_(IFNAME|FAMILY)=" | sort; true'
  stub_ip
}

# stub_ip: eth1 leads to 10.0.0.0/24, eth2 to fd00::; this machine is 10.0.0.7 and fd00::7
stub_ip() {
  stub ip 'case "$*" in
    "-o route get 10.0.0.6") echo "10.0.0.6 via 10.0.0.254 dev eth1 src 10.0.0.7 uid 0 \\    cache" ;;
    "-o route get 10.0.0.7") echo "local 10.0.0.7 dev lo table local src 10.0.0.7 uid 0 \\    cache <local>" ;;
    "-o addr show to 10.0.0.7") echo "3: bond0.7@bond0    inet 10.0.0.7/24 brd 10.0.0.255 scope global bond0.7" ;;
    "-o route get fd00::6") echo "fd00::6 from :: dev eth2 proto kernel src fd00::7 metric 256 pref medium" ;;
    "-o route get 127.0.0.1") echo "local 127.0.0.1 dev lo src 127.0.0.1 uid 0" ;;
    "-o addr show to 127.0.0.1") echo "1: lo    inet 127.0.0.1/8 scope host lo" ;;
    *) echo "RTNETLINK answers: Network is unreachable" >&2; exit 2 ;;
    esac'
}

@test "the route to the master gives the interface of all three" {
  run -0 --separate-stderr finetune
  [[ $output == *$'GLOO_SOCKET_IFNAME=eth1\nHCCL_SOCKET_IFNAME==eth1\nTP_SOCKET_IFNAME=eth1'* ]]
  [[ $output != *FAMILY* ]]
  [[ $stderr == *"network: HCCL =eth1, gloo eth1, tensorpipe eth1 (route to 10.0.0.6)"* ]]
}

@test "on the master it is the interface that holds the address" {
  NODE_RANK=0 MASTER_ADDR=10.0.0.7 run -0 --separate-stderr finetune
  [[ $output == *$'GLOO_SOCKET_IFNAME=bond0.7\nHCCL_SOCKET_IFNAME==bond0.7\nTP_SOCKET_IFNAME=bond0.7'* ]]
}

@test "a name is resolved first, and its IPv4 address wins" {
  stub getent 'case "$*" in
    "ahostsv4 head") printf "10.0.0.6       STREAM head\n10.0.0.9 STREAM\n" ;;
    "ahosts six") printf "fd00::6 STREAM six\n" ;;
    *) exit 2 ;;
    esac'
  MASTER_ADDR='head' run -0 --separate-stderr finetune
  [[ $output == *TP_SOCKET_IFNAME=eth1* ]]
  MASTER_ADDR=six run -0 --separate-stderr finetune
  [[ $output == *TP_SOCKET_IFNAME=eth2* && $output == *HCCL_SOCKET_FAMILY=AF_INET6* ]]
}

@test "IPv6 sets the family of HCCL, unless the caller did" {
  MASTER_ADDR=fd00::6 run -0 --separate-stderr finetune
  [[ $output == *$'HCCL_SOCKET_FAMILY=AF_INET6\nHCCL_SOCKET_IFNAME==eth2'* ]]
  HCCL_SOCKET_FAMILY=AF_INET MASTER_ADDR=fd00::6 run -0 --separate-stderr finetune
  [[ $output == *HCCL_SOCKET_FAMILY=AF_INET$'\n'* ]]
}

@test "what the caller set stays, and the others follow the route" {
  GLOO_SOCKET_IFNAME=ib0 run -0 --separate-stderr finetune
  [[ $output == *$'GLOO_SOCKET_IFNAME=ib0\nHCCL_SOCKET_IFNAME==eth1\nTP_SOCKET_IFNAME=eth1'* ]]
  rm "$CALLS/ip"
  HCCL_SOCKET_IFNAME=a GLOO_SOCKET_IFNAME=b TP_SOCKET_IFNAME=c run -0 --separate-stderr finetune
  [[ $output == *$'GLOO_SOCKET_IFNAME=b\nHCCL_SOCKET_IFNAME=a\nTP_SOCKET_IFNAME=c'* ]]
  [[ ! -e $CALLS/ip ]]
}

@test "one node asks for no route" {
  NNODES=1 NPUS_PER_NODE=16 NODE_RANK=0 run -0 --separate-stderr finetune
  [[ $output != *SOCKET* && ! -e $CALLS/ip ]]
}

@test "a master without a route, or on the loopback device, and a missing ip are notes" {
  MASTER_ADDR=10.1.1.1 run -0 --separate-stderr finetune
  [[ $output != *SOCKET* && $stderr == *"note: no interface of this machine leads to '10.1.1.1'"* ]]
  MASTER_ADDR=127.0.0.1 run -0 --separate-stderr finetune
  [[ $output != *SOCKET* && $stderr == *"note: no interface of this machine leads to '127.0.0.1'"* ]]
  # only what the launcher needs, without ip
  mkdir "$BATS_TEST_TMPDIR/less"
  local program
  for program in "$BIN"/* /usr/bin/* /bin/*; do
    [[ ${program##*/} == ip ]] || ln -sf "$program" "$BATS_TEST_TMPDIR/less/" || true
  done
  PATH=$BATS_TEST_TMPDIR/less run -0 --separate-stderr finetune
  [[ $output != *SOCKET* && $stderr == *"note: the command ip is not there"* ]]
}
