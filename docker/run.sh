#!/usr/bin/env bash
# Start a container with the NPUs, the driver and the folders of a run.
#
# usage: bash docker/run.sh --model MODEL [option]... [[--] command [argument]...]
#        bash docker/run.sh --image IMAGE [option]... [[--] command [argument]...]
#
#   --model MODEL     task; its profile names the image, and without a command it is fine-tuned
#   --image IMAGE     image to run
#   --npus LIST       NPUs of this host, like 0-3,6; all without it; none for work without NPUs
#   --checkout DIR    MindSpeed-MM with tasks/ in it, instead of the image's
#   --data, --ckpt, --save, --logs DIR    what stands behind data, ckpt, save_dir and logs
#   --mount DIR[:PATH]    another folder, at the same path inside or at PATH
#   --shm-size SIZE   shared memory of its own, like 64g, instead of the host's (--ipc=host)
#   --net MODE        host or bridge; host for several nodes, bridge for one
#   --runtime NAME    ascend or none; ascend where the engine has it
#   --user UID:GID    who writes into the folders (you)
#   --env NAME[=VALUE]    a variable for the inside; the launcher's are handed on when they are set
#   --name NAME, --detach    as the engine has them
#   --dry-run         print the command on stdout and start nothing
#
# HOSTFILE, NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT and the launcher's other settings go in from
# the environment. ASCEND_PREFIX is the folder that holds driver/ (found without it); DOCKER the engine.

set -euo pipefail
shopt -s inherit_errexit

REPO=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
: "${DOCKER:=docker}"
# in front of the host's paths, for tests
: "${HOST_ROOT:=}"
# where the host has its device nodes
: "${DEVICE_DIR:=$HOST_ROOT/dev}"

# shellcheck source=../templates/lib/messages.sh
source "$REPO/templates/lib/messages.sh"
# shellcheck source=../templates/lib/options.sh
source "$REPO/templates/lib/options.sh"
# shellcheck source=lib/image.sh
source "$REPO/docker/lib/image.sh"
# shellcheck source=lib/host.sh
source "$REPO/docker/lib/host.sh"
# shellcheck source=lib/folders.sh
source "$REPO/docker/lib/folders.sh"
# shellcheck source=lib/container.sh
source "$REPO/docker/lib/container.sh"

# read_options <word>...: what follows the options is the command
read_options() {
  local option
  mode='' model='' image='' npu_choice='' checkout='' data='' ckpt='' save='' logs='' mounts=()
  shm_size='' ipc='' net='' runtime=auto user=$(id -u):$(id -g) variables=() name='' detach=''
  while (($# > 0)); do
    option=$1
    shift
    case $option in
      -h | --help) mode=--help ;;
      --dry-run) mode=--dry-run ;;
      --detach) detach=--detach ;;
      --)
        break
        ;;
      --model | --image | --npus | --checkout | --data | --ckpt | --save | --logs | --mount | --shm-size | \
        --ipc | --net | --runtime | --user | --env | --name)
        need_value "$option" $#
        set_option "${option#--}" "$1"
        shift
        ;;
      --*=*) set -- "${option%%=*}" "${option#*=}" "$@" ;;
      -*) die 2 "'$option' is no option" "command line" "options stand in front of the command" "see --help" ;;
      *)
        set -- "$option" "$@"
        break
        ;;
    esac
  done
  command=("$@")
}

# set_option <name> <value>
set_option() {
  case $1 in
    npus) npu_choice=$2 ;;
    mount) mounts+=("$2") ;;
    env) variables+=("$2") ;;
    shm-size) shm_size=$2 ;;
    *) printf -v "$1" '%s' "$2" ;;
  esac
}

# check_choice <option> <value> <allowed>...
check_choice() {
  local allowed
  for allowed in "${@:3}"; do
    if [[ $2 == "$allowed" ]]; then
      return
    fi
  done
  problem 2 "$1 is '$2'" "command line" "it has fixed choices" "use one of: ${*:3}"
}

check_options() {
  check_choice --ipc "${ipc:-host}" host
  check_choice --net "${net:-host}" host bridge
  check_choice --runtime "$runtime" auto ascend none
  if [[ ! $user =~ ^[0-9]+:[0-9]+$ ]]; then
    problem 2 "--user is '$user'" "command line" "names of the host mean nothing inside" "write numbers, UID:GID"
  fi
  if [[ -n $ipc && -n $shm_size ]]; then
    problem 2 "--ipc=host and --shm-size=$shm_size exclude each other" "command line" \
      "with the host's shared memory there is none of its own to size" "leave one of them out"
  elif [[ -n $shm_size && ! $shm_size =~ ^[1-9][0-9]*[bkmgBKMG]?$ ]]; then
    problem 2 "--shm-size is '$shm_size'" "command line" "it is a size" "write it like 64g"
  fi
}

# settle_image: --image, or the one of the model's profile
settle_image() {
  if [[ -n $model && ! -f $REPO/tasks/$model/profile.yaml ]]; then
    die 2 "no task is called '$model'" "$REPO/tasks" "a task is a folder of tasks/ with a profile" \
      "use one of: $(cd -- "$REPO/tasks" && printf '%s ' */profile.yaml | sed 's,/profile.yaml,,g; s, $,,')"
  elif [[ -z $image && -z $model ]]; then
    die 2 "neither an image nor a model is named" "command line" "one of them says what to run" \
      "give --model MODEL or --image IMAGE"
  elif [[ -z $image ]]; then
    describe_image "$model" '' '' ''
    image=${image_facts[0]#IMAGE=}
  fi
  check_image_name "$image" --image
}

# stop_on_usage: faults of this host are shown beside the command, others leave none
stop_on_usage() {
  local code
  for code in "${problem_codes[@]}"; do
    if ((code == 2)); then
      exit 2
    fi
  done
}

# settle_command: without one a model is fine-tuned
settle_command() {
  if ((${#command[@]} > 0)); then
    return
  elif [[ -n $model ]]; then
    command=(bash tasks/finetune.sh "$model")
    check_results
  else
    command=(bash)
  fi
}

main() {
  problem_codes=()
  read_options "$@"
  if [[ $mode == --help ]]; then
    show_usage "${BASH_SOURCE[0]}"
    return
  fi
  check_options
  settle_image
  settle_command
  find_prefix
  choose_npus "$npu_choice"
  set_arguments
  start=("$DOCKER" run "${arguments[@]}" "$image" "${command[@]}")
  if [[ $mode == --dry-run ]]; then
    stop_on_usage
    note_faults
    show_command "${start[@]}"
    return
  fi
  check_docker
  stop_on_problems
  exec "${start[@]}"
}

main "$@"
