#!/usr/bin/env bats
# Nodes, ranks, hostfiles and sizes.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  stub_hostname "10.0.0.7 fd00::7" worker-1
}

# node_arguments: "<nnodes> <node_rank> <master_addr>" of the command on stdout
node_arguments() {
  printf '%s %s %s' "$(argument --nnodes "$output")" "$(argument --node_rank "$output")" \
    "$(argument --master_addr "$output")"
}

@test "an address of this machine gives its rank" {
  printf '10.0.0.6\n10.0.0.7\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '2 1 10.0.0.6' ]]
  [[ $stderr != *"is not known"* && $stderr != *"lines of the hostfile"* ]]
  [[ $stderr == *"place: NNODES=2 (hostfile), NODE_RANK=1 (hostfile), MASTER_ADDR=10.0.0.6 (hostfile), MASTER_PORT=29501 (profile), NPUS_PER_NODE=8 (profile)"* ]]
}

@test "comments, blank lines, CRLF, slots, a byte order mark and a missing last newline are read" {
  printf '\xef\xbb\xbf# nodes\r\n\r\n  10.0.0.6 slots=8  # first \r\n\t10.0.0.7 slots=8\t\r\n' >hosts
  printf '10.0.0.8\n10.0.0.9' >>hosts
  HOSTFILE=hosts run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '4 1 10.0.0.6' ]]
  [[ $(argument --global-batch-size "$output") == 192 ]]
}

@test "worker-1 is not worker-10" {
  printf 'worker-10\nworker-11\nworker-1\nworker-100\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '4 2 worker-10' ]]
}

@test "on worker-10 the line of worker-1 is another machine" {
  stub_hostname "10.0.0.70 fd00::70" worker-10.cluster
  printf 'worker-1\n10.0.0.7\nfd00::7\n10.0.0.70\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '4 3 worker-1' ]]
}

@test "10.0.0.7 is neither 10.0.0.70 nor 110.0.0.7" {
  printf '10.0.0.70\n110.0.0.7\n10.0.0.7\n10x0.0.7\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '4 2 10.0.0.70' ]]
}

@test "host names match in any case, and IPv6 addresses match" {
  printf 'a\nWORKER-1\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '2 1 a' ]]
  printf 'fd00::6\nFD00::7\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '2 1 fd00::6' ]]
  printf '[fd00::6] slots=8\n[fd00::7]\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '2 1 fd00::6' ]]
}

@test "a machine that is not in the hostfile stops a start" {
  with_everything
  unset NNODES NPUS_PER_NODE
  printf '10.0.0.1\n10.0.0.2\n' >hosts
  HOSTFILE=hosts run -2 --separate-stderr finetune
  has_error "this machine stands on 0 lines of the hostfile" "10.0.0.7"
  has_error "this machine stands on 0 lines of the hostfile" "set NODE_RANK"
  [[ ! -e $CALLS/torchrun ]]
}

@test "a machine that is twice in the hostfile stops a start" {
  with_everything
  unset NNODES NPUS_PER_NODE
  printf '10.0.0.7\nworker-1\n' >hosts
  HOSTFILE=hosts run -2 --separate-stderr finetune
  has_error "this machine stands on 2 lines of the hostfile"
}

@test "NODE_RANK and MASTER_ADDR of the environment win over the hostfile" {
  printf '10.0.0.1\n10.0.0.2\n' >hosts
  HOSTFILE=hosts NODE_RANK=1 MASTER_ADDR=head run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '2 1 head' ]]
  [[ $stderr != *"lines of the hostfile"* ]]
  [[ $stderr == *"place: NNODES=2 (hostfile), NODE_RANK=1 (environment), MASTER_ADDR=head (environment),"* ]]
}

@test "NNODES, NODE_RANK and MASTER_ADDR are enough without a hostfile" {
  NNODES=4 NODE_RANK=3 MASTER_ADDR=10.0.0.1 run -0 --separate-stderr finetune --dry-run
  [[ $(node_arguments) == '4 3 10.0.0.1' ]]
  [[ $stderr != *"is not known"* ]]
}

@test "an NNODES that the hostfile contradicts is refused" {
  printf '10.0.0.6\n10.0.0.7\n' >hosts
  NNODES=3 HOSTFILE=hosts run -2 --separate-stderr finetune --dry-run
  has_error "NNODES is 3 and the hostfile names 2 nodes" "unset NNODES"
  [[ -z $output ]]
}

@test "a hostfile that is missing or empty is refused" {
  HOSTFILE=nowhere run -2 --separate-stderr finetune --dry-run
  has_error "the hostfile 'nowhere' cannot be read" "$CHECKOUT"
  printf '# nothing\n\n' >hosts
  HOSTFILE=hosts run -2 --separate-stderr finetune --dry-run
  has_error "the hostfile 'hosts' names no node"
}

@test "slots that differ from NPUS_PER_NODE and stray words are refused by line" {
  printf '10.0.0.6 slots=16\n10.0.0.7 rank1\n' >hosts
  HOSTFILE=hosts run -2 --separate-stderr finetune --dry-run
  has_error "'slots=16' does not fit this run" "hosts:1"
  has_error "'rank1' does not fit this run" "hosts:2"
}

@test "one node of 8 NPUs is refused with the reason and the least number of nodes" {
  NNODES=1 run -2 --separate-stderr finetune --dry-run
  has_error "1 x 8 = 8 NPUs cannot hold TP 2 x PP 8 x CP 1 = 16" "use 2 nodes of 8"
  [[ -z $output ]]
}

@test "a number of NPUs that leaves a part of a copy is refused" {
  NNODES=3 run -2 --separate-stderr finetune --dry-run
  has_error "3 x 8 = 24 NPUs cannot hold" "multiple"
  NNODES=1 NPUS_PER_NODE=6 run -2 --separate-stderr finetune --dry-run
  has_error "1 x 6 = 6 NPUs cannot hold" "use 8 nodes of 6"
}

@test "the global batch follows from the nodes" {
  NNODES=8 MICRO_BATCH_SIZE=2 GRAD_ACCUMULATION=3 run -0 --separate-stderr finetune --dry-run
  [[ $(argument --global-batch-size "$output") == 24 ]]
  [[ $(argument --micro-batch-size "$output") == 2 ]]
}

@test "a global batch that does not divide is refused" {
  NNODES=4 GLOBAL_BATCH_SIZE=64 run -0 --separate-stderr finetune --dry-run
  [[ $(argument --global-batch-size "$output") == 64 ]]
  NNODES=4 GLOBAL_BATCH_SIZE=63 run -2 --separate-stderr finetune --dry-run
  has_error "GLOBAL_BATCH_SIZE 63 is not a multiple of 2" "2 data parallel ranks"
}

@test "every setting that is no number is named, all at once" {
  export NNODES=two NPUS_PER_NODE=08 MASTER_PORT=-1 GRAD_ACCUMULATION=0 TRAIN_ITERS='1 0' TUNING=qlora
  run -2 --separate-stderr finetune --dry-run
  has_error "NNODES is 'two'"
  has_error "NPUS_PER_NODE is '08'"
  has_error "MASTER_PORT is '-1'"
  has_error "GRAD_ACCUMULATION is '0'"
  has_error "TRAIN_ITERS is '1 0'"
  has_error "TUNING is 'qlora'" "full or lora"
}

@test "text in a setting is never evaluated" {
  NNODES='a[$(touch evaluated)]' run -2 --separate-stderr finetune --dry-run
  NODE_RANK='a[$(touch evaluated)]' run -2 --separate-stderr finetune --dry-run
  [[ ! -e evaluated ]]
}

@test "a NODE_RANK outside the nodes is refused" {
  NODE_RANK=2 MASTER_ADDR=a run -2 --separate-stderr finetune --dry-run
  has_error "NODE_RANK is '2'" "0 to 1"
  NODE_RANK=01 MASTER_ADDR=a run -2 --separate-stderr finetune --dry-run
  has_error "NODE_RANK is '01'"
}
