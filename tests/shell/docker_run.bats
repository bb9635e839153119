#!/usr/bin/env bats
# docker/run.sh: what a container gets of a host, with a stand-in for docker and a made-up host.

IMAGE=taskpack:26.1.0-910b-qwen2_5_vl

setup() {
  load helpers
  CALLS=$BATS_TEST_TMPDIR/calls
  BIN=$BATS_TEST_TMPDIR/bin
  HOST_ROOT=$BATS_TEST_TMPDIR/host
  mkdir -p "$CALLS" "$BIN" "$HOST_ROOT/dev" "$HOST_ROOT/etc" "$HOST_ROOT/usr/local/Ascend/driver" \
    "$HOST_ROOT/usr/local/bin" "$HOST_ROOT/usr/local/dcmi"
  (cd "$HOST_ROOT/dev" && touch davinci{0..7} davinci_manager devmm_svm hisi_hdc null)
  touch "$HOST_ROOT/usr/local/bin/npu-smi" "$HOST_ROOT/etc/ascend_install.info"
  export CALLS HOST_ROOT PATH="$BIN:/usr/bin:/bin"
  unset NNODES HOSTFILE NODE_RANK MASTER_ADDR NPUS_PER_NODE ASCEND_PREFIX DOCKER DEVICE_DIR
  stub docker 'if [[ $1 == info ]]; then printf "%s\n" "${RUNTIMES-}"; fi'
  cd "$BATS_TEST_TMPDIR" || return
}

run_sh() {
  bash "$REPO/docker/run.sh" "$@"
}

# words: those of the command on stdout, one a line
words() {
  eval "printf '%s\n' $output"
}

# has <word> [<word behind it>]
has() {
  if (($# == 1)); then
    words | grep -Fxq -- "$1"
  else
    words | grep -Fx -A 1 -- "$1" | grep -Fxq -- "$2"
  fi
}

# lacks <word> [<word behind it>]
lacks() {
  if has "$@"; then
    return 1
  fi
}

# read_only <path>: it is mounted, and only to be read
read_only() {
  has --mount "type=bind,source=$HOST_ROOT$1,target=$1,readonly"
}

# devices: names of the nodes inside, in order
devices() {
  words | sed -n 's,.*:/dev/\(.*\),\1,p' | paste -sd ' '
}

# a_checkout <folder>
a_checkout() {
  mkdir -p "$1/megatron" "$1/tasks/$MODEL" "$1/data"
  touch "$1/pretrain_vlm.py"
}

@test "every NPU, the shared devices and the driver go in, davinci_manager is no NPU" {
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  [[ $(devices) == 'davinci0 davinci1 davinci2 davinci3 davinci4 davinci5 davinci6 davinci7 davinci_manager devmm_svm hisi_hdc' ]]
  has --device "$HOST_ROOT/dev/davinci7:/dev/davinci7"
  read_only /usr/local/Ascend/driver
  read_only /usr/local/bin/npu-smi
  has --group-add 1000
  has --env ASCEND_PREFIX=/usr/local/Ascend
  [[ $(words | tail -n 2 | paste -sd ' ') == "$IMAGE bash" ]]
  [[ -z $stderr && $output != *privileged* ]]
}

@test "16 NPUs come in the order of their numbers" {
  (cd "$HOST_ROOT/dev" && touch davinci{8..15})
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  [[ $(devices) == "$(printf 'davinci%d ' {0..15})davinci_manager devmm_svm hisi_hdc" ]]
}

@test "only files of the driver that exist are mounted" {
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  [[ $output != *sbin/npu-smi* && $output != *add-ons* && $output != *hccn* ]]
  mkdir -p "$HOST_ROOT/usr/local/sbin" "$HOST_ROOT/usr/local/Ascend/add-ons"
  touch "$HOST_ROOT/usr/local/sbin/npu-smi" "$HOST_ROOT/etc/hccn.conf"
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  read_only /usr/local/sbin/npu-smi
  read_only /etc/hccn.conf
  read_only /usr/local/Ascend/add-ons
}

@test "nodes of the 950 series go in where their folders exist" {
  mkdir "$HOST_ROOT/dev/uburma" "$HOST_ROOT/dev/ummu"
  touch "$HOST_ROOT/dev/uburma/ub0" "$HOST_ROOT/dev/ummu/tid"
  run -0 --separate-stderr run_sh --image "$IMAGE" --npus 0 --dry-run
  [[ $(devices) == 'davinci0 davinci_manager devmm_svm hisi_hdc uburma/ub0 ummu/tid' ]]
}

@test "--npus takes numbers and ranges, once each, and says how many to the launcher" {
  run -0 --separate-stderr run_sh --image "$IMAGE" --npus 6,0-2,2 --dry-run
  [[ $(devices) == 'davinci0 davinci1 davinci2 davinci6 davinci_manager devmm_svm hisi_hdc' ]]
  has --env NPUS_PER_NODE=4
  NPUS_PER_NODE=2 run -0 --separate-stderr run_sh --image "$IMAGE" --npus=0-3 --dry-run
  has --env NPUS_PER_NODE=2
  lacks --env NPUS_PER_NODE=4
}

@test "a list of NPUs that is none is refused" {
  local list
  for list in 0- 3-1 a ',' '0,,1' '0,1,' -1 ' '; do
    run -2 --separate-stderr run_sh --image "$IMAGE" --npus "$list" --dry-run
    has_error "'$list' is no list of NPUs" "0-3"
    [[ -z $output ]]
  done
}

@test "NPUs that the host lacks are named" {
  run -5 --separate-stderr run_sh --image "$IMAGE" --npus 6-9
  has_error "NPUs that do not exist: 8 9" "0 1 2 3 4 5 6 7"
  [[ $(head -n 1 "$CALLS/docker") != run ]]
}

@test "an NPU that a running container has is not given to a second one" {
  stub docker 'case $1 in' 'ps) echo 0a; echo 0b ;;' \
    "inspect) echo '/first $HOST_ROOT/dev/davinci1 $HOST_ROOT/dev/davinci_manager'; echo '/second' ;;" 'esac'
  run -5 --separate-stderr run_sh --image "$IMAGE" --npus 0-1
  has_error "NPU 1 is in use" "container /first"
  [[ $(head -n 1 "$CALLS/docker") == inspect ]]
  (cd "$HOST_ROOT/dev" && touch davinci{10..15})
  run -0 --separate-stderr run_sh --image "$IMAGE" --npus 0,10-15
  grep -Fxq run "$CALLS/docker"
}

@test "a host without NPUs is refused, and --npus none starts there" {
  rm "$HOST_ROOT"/dev/davinci[0-9]*
  run -5 --separate-stderr run_sh --image "$IMAGE"
  has_error "this host shows no NPU" "--npus none"
  rm -r "$HOST_ROOT/usr/local/Ascend" "${HOST_ROOT:?}/dev"
  run -0 --separate-stderr run_sh --image "$IMAGE" --npus none --dry-run
  [[ -z $(devices) && $output != *driver* && $output != *NPUS_PER_NODE* ]]
}

@test "a missing shared device and a missing driver are named together" {
  rm "$HOST_ROOT/dev/devmm_svm"
  rm -r "$HOST_ROOT/usr/local/Ascend/driver"
  run -5 --separate-stderr run_sh --image "$IMAGE"
  has_error "the device devmm_svm is missing" "npu-smi"
  has_error "no driver in '/usr/local/Ascend/driver'" "/usr/local/npu"
}

@test "a dry run shows what is missing on this host beside the command" {
  rm "$HOST_ROOT/dev/hisi_hdc"
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has_error "the device hisi_hdc is missing"
  [[ $stderr == *"would stop at the 1 faults"* ]]
  has "$IMAGE"
}

@test "the driver may live under /usr/local/npu" {
  mv "$HOST_ROOT/usr/local/Ascend" "$HOST_ROOT/usr/local/npu"
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  read_only /usr/local/npu/driver
  [[ $output != *local/Ascend* ]]
  has --env ASCEND_PREFIX=/usr/local/npu
}

@test "ASCEND_PREFIX wins over the installer's note, which wins over the usual folders" {
  mkdir -p "$HOST_ROOT/opt/ascend/driver" "$HOST_ROOT/opt/other/driver"
  printf 'Driver_Install_Type=full\r\nDriver_Install_Path_Param="/opt/ascend"\r\n' >"$HOST_ROOT/etc/ascend_install.info"
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has --env ASCEND_PREFIX=/opt/ascend
  ASCEND_PREFIX=/opt/other run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has --env ASCEND_PREFIX=/opt/other
  rm -r "$HOST_ROOT/opt/ascend"
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has --env ASCEND_PREFIX=/usr/local/Ascend
}

@test "the host's shared memory or some of its own, never both" {
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has --ipc=host
  run -0 --separate-stderr run_sh --image "$IMAGE" --shm-size 64g --dry-run
  has --shm-size=64g
  lacks --ipc=host
  run -2 --separate-stderr run_sh --image "$IMAGE" --shm-size 64g --ipc=host --dry-run
  has_error "--ipc=host and --shm-size=64g exclude each other"
  [[ -z $output ]]
  run -2 --separate-stderr run_sh --image "$IMAGE" --shm-size plenty
  has_error "--shm-size is 'plenty'" "64g"
}

@test "several nodes share the hosts' network, one node does not" {
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  lacks --net=host
  NNODES=2 run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has --net=host
  printf '# nodes\n10.0.0.6\r\n\n10.0.0.7 slots=8\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has --net=host
  run -0 --separate-stderr run_sh --image "$IMAGE" --net host --dry-run
  has --net=host
}

@test "a model of several nodes has the hosts' network unless NNODES says 1" {
  mkdir save
  run -0 --separate-stderr run_sh --model "$MODEL" --save save --dry-run
  has --net=host
  NNODES=1 run -0 --separate-stderr run_sh --model "$MODEL" --save save --dry-run
  lacks --net=host
  run -2 --separate-stderr run_sh --model "$MODEL" --save save --net bridge --dry-run
  has_error "--net bridge with 2 nodes" "NNODES=1"
}

@test "with the vendor's runtime it adds devices and driver, and we add the files it leaves out" {
  touch "$HOST_ROOT/usr/local/Ascend/driver/version.info"
  export RUNTIMES='{"ascend":{"path":"ascend-docker-runtime"},"runc":{"path":"runc"}}'
  run -0 --separate-stderr run_sh --image "$IMAGE" --npus 0-2,4 --dry-run
  has --runtime ascend
  has --env ASCEND_VISIBLE_DEVICES=0,1,2,4
  [[ -z $(devices) && $output != *dcmi* ]]
  read_only /usr/local/Ascend/driver/version.info
  read_only /etc/ascend_install.info
  run -0 --separate-stderr run_sh --image "$IMAGE" --npus none --dry-run
  has --env ASCEND_VISIBLE_DEVICES=void
  run -0 --separate-stderr run_sh --image "$IMAGE" --runtime none --dry-run
  lacks --runtime ascend
  has --device "$HOST_ROOT/dev/davinci0:/dev/davinci0"
}

@test "an engine that has no such runtime can be told to use it" {
  run -0 --separate-stderr run_sh --image "$IMAGE" --runtime ascend --dry-run
  has --env ASCEND_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
  run -2 --separate-stderr run_sh --image "$IMAGE" --runtime nvidia
  has_error "--runtime is 'nvidia'" "auto ascend none"
}

@test "files belong to the caller, or to the user that is named by numbers" {
  run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has --user "$(id -u):$(id -g)"
  run -0 --separate-stderr run_sh --image "$IMAGE" --user 1000:1000 --dry-run
  has --user 1000:1000
  run -2 --separate-stderr run_sh --image "$IMAGE" --user root
  has_error "--user is 'root'" "UID:GID"
}

@test "folders stand where the tasks look for them" {
  mkdir 'my data' ckpt save logs
  run -0 --separate-stderr run_sh --image "$IMAGE" --data 'my data' --ckpt ckpt --save save --logs logs \
    --mount ckpt --mount save:/saved --dry-run
  has --mount "type=bind,source=$PWD/my data,target=/workspace/MindSpeed-MM/data"
  has --mount "type=bind,source=$PWD/ckpt,target=/workspace/MindSpeed-MM/ckpt"
  has --mount "type=bind,source=$PWD/save,target=/workspace/MindSpeed-MM/save_dir"
  has --mount "type=bind,source=$PWD/logs,target=/workspace/MindSpeed-MM/logs"
  has --mount "type=bind,source=$PWD/ckpt,target=$PWD/ckpt"
  has --mount "type=bind,source=$PWD/save,target=/saved"
}

@test "a folder that is missing or has a comma is refused, not made" {
  mkdir 'a,b'
  run -2 --separate-stderr run_sh --image "$IMAGE" --data nowhere --ckpt 'a,b' --mount absent
  has_error "the folder 'nowhere' does not exist" --data
  has_error "the folder 'a,b' has a comma"
  has_error "the folder 'absent' does not exist" --mount
  [[ ! -e nowhere && ! -e absent ]]
}

@test "a checkout takes the place of the image's, and its links lead to the same place" {
  a_checkout mm
  mkdir elsewhere
  rmdir mm/data
  ln -s "$PWD/elsewhere" mm/data
  run -0 --separate-stderr run_sh --model "$MODEL" --checkout mm --dry-run
  has --mount "type=bind,source=$PWD/mm,target=/workspace/MindSpeed-MM"
  has --mount "type=bind,source=$PWD/elsewhere,target=$PWD/elsewhere"
}

@test "a folder that is no checkout, or lacks Megatron or the task, is refused" {
  mkdir -p mm
  run -5 --separate-stderr run_sh --model "$MODEL" --checkout mm
  has_error "mm is no MindSpeed-MM checkout" "pretrain_vlm.py"
  touch mm/pretrain_vlm.py
  run -5 --separate-stderr run_sh --model "$MODEL" --checkout mm
  has_error "mm lacks Megatron's package"
  mkdir mm/megatron
  run -5 --separate-stderr run_sh --model "$MODEL" --checkout mm
  has_error "mm has no task '$MODEL'" "cp -r"
}

@test "a model is fine-tuned in the image of its profile, with its results on the host" {
  a_checkout mm
  run -0 --separate-stderr run_sh --model qwen2.5vl-72b --image "$IMAGE" --save mm --dry-run
  [[ $(words | tail -n 4 | paste -sd ' ') == "$IMAGE bash tasks/finetune.sh qwen2.5vl-72b" ]]
  run -0 --separate-stderr run_sh --model "$MODEL" --checkout mm --dry-run
  [[ $(words | tail -n 4 | paste -sd ' ') == "$IMAGE bash tasks/finetune.sh $MODEL" ]]
  run -2 --separate-stderr run_sh --model "$MODEL" --dry-run
  has_error "nothing of this host is behind save_dir" "--checkout"
}

@test "a command is passed on word by word" {
  run -0 --separate-stderr run_sh --image "$IMAGE" --npus none -- bash -c 'echo "a  b"' --dry-run
  [[ $(tail -n 4 "$CALLS/docker") == $'bash\n-c\necho "a  b"\n--dry-run' ]]
  run -0 --separate-stderr run_sh --model "$MODEL" --npus none taskpack --version
  [[ $(tail -n 3 "$CALLS/docker") == "$IMAGE"$'\ntaskpack\n--version' ]]
}

@test "settings of the launcher and of HCCL go in, other variables only by --env" {
  TUNING=full HCCL_IF_BASE_PORT=61000 GLOO_SOCKET_IFNAME=eth1 MASTER_ADDR=10.0.0.6 SECRET=x \
    run -0 --separate-stderr run_sh --image "$IMAGE" --env NAME --env 'TEXT=a b' --dry-run
  has --env TUNING=full
  has --env HCCL_IF_BASE_PORT=61000
  has --env GLOO_SOCKET_IFNAME=eth1
  has --env MASTER_ADDR=10.0.0.6
  has --env NAME
  has --env 'TEXT=a b'
  [[ $output != *SECRET* ]]
}

@test "the hostfile is found inside, and one that is missing is refused" {
  printf '10.0.0.6\n10.0.0.7\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has --env HOSTFILE=/workspace/hostfile
  has --mount "type=bind,source=$PWD/hosts,target=/workspace/hostfile,readonly"
  HOSTFILE=none run -2 --separate-stderr run_sh --image "$IMAGE" --dry-run
  has_error "the hostfile 'none' cannot be read"
}

@test "an image without a version, and neither image nor model, are refused" {
  for name in taskpack taskpack:latest registry:5000/taskpack; do
    run -2 --separate-stderr run_sh --image "$name"
    has_error "the image name '$name' does not say a version"
  done
  run -0 --separate-stderr run_sh --image "registry:5000/taskpack@sha256:0a" --dry-run
  run -2 --separate-stderr run_sh
  has_error "neither an image nor a model is named"
  run -2 --separate-stderr run_sh --model qwen2.5vl-33b
  has_error "no task is called 'qwen2.5vl-33b'" "qwen2.5vl-32b"
}

@test "an unknown option and an option without its value are refused" {
  run -2 --separate-stderr run_sh --gpus all
  has_error "'--gpus' is no option"
  run -2 --separate-stderr run_sh --image
  has_error "--image lacks its value"
}

@test "the container's exit status is ours" {
  stub docker 'if [[ $1 == run ]]; then exit 42; fi'
  run -42 run_sh --image "$IMAGE" --name job --detach -- true
  grep -Fxq -- --detach "$CALLS/docker"
  grep -Fxq job "$CALLS/docker"
}

@test "a host without docker is told so" {
  rm "$BIN/docker"
  DOCKER=no-such-engine run -5 --separate-stderr run_sh --image "$IMAGE"
  has_error "'no-such-engine' is not on PATH" "DOCKER"
}

@test "--help shows every option" {
  run -0 run_sh --help
  for option in model image npus checkout data mount shm-size net runtime user env name detach dry-run; do
    [[ $output == *"--$option"* ]]
  done
}
