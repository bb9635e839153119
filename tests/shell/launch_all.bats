#!/usr/bin/env bats
# Every node of a hostfile over ssh, with an ssh that runs the command here and a torchrun per node.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  with_everything
  unset NNODES NPUS_PER_NODE
  printf '# two nodes\nnode-a slots=8\nnode-b slots=8\n' >hosts
  export HOSTFILE=hosts STOP_SECONDS=2 RESTART_SECONDS=0
  stub_ssh
}

# stub_ssh [<line>...]: appends its words, then runs the lines, then the command with the shell of a node
stub_ssh() {
  {
    printf '#!/usr/bin/env bash\n'
    # shellcheck disable=SC2016 # expanded by the stub
    printf '%s\n' 'printf "%s\n" "$*" >>"$CALLS/ssh"' 'host=${*: -2:1}' "$@" 'cd / && exec bash -c "${*: -1}"'
  } >"$BIN/ssh"
  chmod +x "$BIN/ssh"
}

# stub_torchrun <rank 0's line> <rank 1's line>: N counts the starts of a node; "save I" writes all rank files
stub_torchrun() {
  cat >"$BIN/torchrun" <<SCRIPT
#!/usr/bin/env bash
rank=\$(printf '%s\n' "\$@" | grep -A 1 -Fx -e --node_rank | tail -n 1)
N=\$((\$(ls "\$CALLS" | grep -c "^start\$rank") + 1))
printf '%s\n' "\$@" >"\$CALLS/start\$rank.\$N"
save() {
  local tp pp folder
  for tp in 0 1; do
    for pp in 0 1 2 3 4 5 6 7; do
      folder=\$(printf 'save_dir/iter_%07d/mp_rank_%02d_%03d' "\$1" "\$tp" "\$pp")
      mkdir -p "\$folder"
      { printf 'PK\5\6'; head -c 18 /dev/zero; } >"\$folder/model_optim_rng.pt"
    done
  done
  echo "\$1" >save_dir/latest_checkpointed_iteration.txt
}
until_other() { until [[ -e \$CALLS/start\$1.\$2 ]]; do sleep 0.05; done; }
echo "node \$rank of torchrun, start \$N"
case \$rank in
  0) $1 ;;
  1) $2 ;;
esac
SCRIPT
  chmod +x "$BIN/torchrun"
}

# launch_all [<argument>...]: one that hangs fails its test
launch_all() {
  timeout --foreground -s KILL 60 bash "$TASK/launch_all.sh" "$@" 3>&-
}

# word_after <flag> <start>
word_after() {
  grep -Fx -A 1 -e "$1" "$CALLS/start$2" | sed -n 2p
}

@test "every node starts with its rank, in the same place, and lines are tagged" {
  stub_torchrun 'echo from a' 'echo from b'
  run -0 --separate-stderr launch_all --extra 'two words'
  [[ $output == *'[node-a] from a'* && $output == *'[node-b] from b'* ]]
  [[ $(word_after --nnodes 0.1) == 2 && $(word_after --node_rank 0.1) == 0 && $(word_after --master_addr 0.1) == node-a ]]
  [[ $(word_after --nnodes 1.1) == 2 && $(word_after --node_rank 1.1) == 1 && $(word_after --master_addr 1.1) == node-a ]]
  [[ $(tail -n 1 "$CALLS/start1.1") == 'two words' ]]
  run ! grep -vE '^\[node-[ab]\] ' <<<"$output"
}

@test "ssh never asks for a password and gives up in time" {
  stub_torchrun : :
  SSH_SECONDS=7 run -0 --separate-stderr launch_all
  [[ $(grep -c -- '-o BatchMode=yes -o ConnectTimeout=7 ' "$CALLS/ssh") -eq 2 ]]
  [[ $(grep -c -- ' -- node-a cd ' "$CALLS/ssh") -eq 1 && $(grep -c -- ' -- node-b cd ' "$CALLS/ssh") -eq 1 ]]
}

@test "settings of this shell go to every node" {
  stub_torchrun : :
  LR=2e-6 SAVE_PATH='out put' TASK_QUEUE_ENABLE=1 GRAD_ACCUMULATION=3 run -0 --separate-stderr launch_all
  [[ $(word_after --lr 1.1) == 2e-6 && $(word_after --save 1.1) == 'out put' && $(word_after --global-batch-size 1.1) == 3 ]]
  run -0 --separate-stderr launch_all --dry-run
  [[ $output != *LR=* ]]
  TASK_QUEUE_ENABLE=1 run -0 --separate-stderr launch_all --dry-run
  [[ $(grep -c 'TASK_QUEUE_ENABLE=1' <<<"$output") -eq 2 ]]
}

@test "a dry run prints the command of each node and connects to none" {
  run -0 --separate-stderr launch_all --dry-run
  [[ ! -e $CALLS/ssh && $(wc -l <<<"$output") -eq 2 ]]
  [[ $output == *"ConnectTimeout=20"*"NODE_RANK=0"*"NODE_RANK=1"* ]]
}

@test "when one node fails the others are stopped, and its status is the result" {
  stub_torchrun 'trap "echo told to stop; exit 3" TERM; while true; do sleep 0.05; done' 'until_other 0 1; sleep 0.5; exit 7'
  run -7 --separate-stderr launch_all
  [[ $stderr == *"node 1 (node-b) ended with exit status 7"* ]]
  [[ $output == *'[node-a] told to stop'* ]]
  [[ ! -e $CALLS/start0.2 ]]
}

@test "a node that does not stop is killed with its workers" {
  stub_torchrun 'trap "" TERM; sleep 300 & echo $! >"$CALLS/worker"; while true; do sleep 0.1; done' \
    'until [[ -s $CALLS/worker ]]; do sleep 0.1; done; sleep 0.5; exit 7'
  run -7 --separate-stderr launch_all
  is_gone "$(<"$CALLS/worker")"
}

@test "a stop of this script stops every node" {
  stub_torchrun 'trap "exit 3" TERM; while true; do sleep 0.05; done' 'trap "exit 4" TERM; while true; do sleep 0.05; done'
  timeout --foreground -s KILL 60 bash "$TASK/launch_all.sh" >out 2>err 3>&- &
  local pid=$! status=0
  until [[ -e $CALLS/start0.1 && -e $CALLS/start1.1 ]]; do sleep 0.05; done
  sleep 0.5
  kill -TERM "$pid"
  wait "$pid" || status=$?
  [[ $status -eq 3 || $status -eq 4 ]]
  grep -Fq "node 0 (node-a) ended with exit status 3" err
  grep -Fq "node 1 (node-b) ended with exit status 4" err
}

@test "nodes stop when this script is killed, since their connection closes" {
  stub_torchrun 'trap "touch \"$CALLS/stopped\"; exit 3" TERM; while true; do sleep 0.05; done' 'trap "exit 4" TERM; while true; do sleep 0.05; done'
  bash "$TASK/launch_all.sh" >out 2>err 3>&- &
  local pid=$! tenths
  until [[ -e $CALLS/start0.1 && -e $CALLS/start1.1 ]]; do sleep 0.05; done
  sleep 0.5
  kill -KILL "$pid"
  for ((tenths = 0; tenths < 100; tenths++)); do
    [[ ! -e $CALLS/stopped ]] || break
    sleep 0.1
  done
  [[ -e $CALLS/stopped ]]
}

@test "a node that cannot be reached ends the others with a reason" {
  stub_ssh '[[ $host != node-b ]] || { echo "connect to host node-b port 22: Connection timed out" >&2; exit 255; }'
  stub_torchrun 'trap "exit 3" TERM; while true; do sleep 0.05; done' :
  run -5 --separate-stderr launch_all
  has_error "node 1 was not reached, or its connection broke" "ssh -o BatchMode=yes node-b true"
  [[ $output == *'[node-b] connect to host node-b port 22: Connection timed out'* ]]
}

@test "with MAX_RESTARTS all nodes start again from the newest iteration that is complete on all" {
  stub_torchrun 'if ((N == 1)); then save 100; save 200; trap "exit 3" TERM; while true; do sleep 0.05; done; fi' \
    'until_other 0 1; if ((N == 1)); then until grep -qs 200 save_dir/latest_checkpointed_iteration.txt; do sleep 0.1; done
      rm save_dir/iter_0000200/mp_rank_01_007/model_optim_rng.pt; exit 7; fi'
  MAX_RESTARTS=1 run -0 --separate-stderr launch_all
  [[ $stderr == *"restart 1 of 1 of all nodes: from iteration 100"* ]]
  [[ $(word_after --load 0.2) == save_dir.resume_100 && $(word_after --load 1.2) == save_dir.resume_100 ]]
  [[ $(word_after --load-base-model 1.2) == ckpt/mm_path/Qwen2.5-VL-32B-Instruct ]]
}

@test "without a checkpoint all nodes start again from the beginning, MAX_RESTARTS times at most" {
  stub_torchrun 'trap "exit 3" TERM; while true; do sleep 0.05; done' 'until_other 0 "$N"; exit 7'
  MAX_RESTARTS=1 run -7 --separate-stderr launch_all
  [[ $stderr == *"restart 1 of 1 of all nodes: from the beginning"* ]]
  [[ $(word_after --load 1.2) == ckpt/mm_path/Qwen2.5-VL-32B-Instruct ]]
  [[ ! -e $CALLS/start1.3 ]]
}

@test "a hostfile is needed, and its words are checked before ssh sees them" {
  unset HOSTFILE
  run -2 --separate-stderr launch_all
  has_error "HOSTFILE is not set" "hostfile.example"
  printf -- '-oProxyCommand=x\nok\n' >hosts
  HOSTFILE=hosts run -2 --separate-stderr launch_all
  has_error "'-oProxyCommand=x' is no host name"
  [[ ! -e $CALLS/ssh ]]
}

@test "IPv6 lines are addresses for ssh too" {
  printf '[fd00::6]\nfd00::7\n' >hosts
  run -0 --separate-stderr launch_all --dry-run
  [[ $output == *"-- fd00::6 "*"MASTER_ADDR=fd00::6"*"-- fd00::7 "* ]]
}
