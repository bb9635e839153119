#!/usr/bin/env bash
# Build the image of a MindSpeed-MM release, with torch, torch_npu, MindSpeed and taskpack in it.
#
# usage: bash docker/build.sh --release R --chip 910b|a3 [option]...
#        bash docker/build.sh --model MODEL [option]...
#
#   --release R        MindSpeed-MM release; its versions come from releases.yaml
#   --chip C           910b for Atlas A2, a3 for Atlas A3
#   --model MODEL      takes release, chip and family from the profile in tasks/MODEL
#   --family F         family whose MindSpeed commit is taken (qwen2_5_vl)
#   --src DIR          takes MindSpeed-MM, Megatron-LM, MindSpeed, transformers and wheels that are
#                      in DIR instead of cloning and downloading them
#   --base IMAGE       CANN image to start from, for example a mirror's
#   --tag NAME:TAG     name of the image (taskpack:RELEASE-CHIP-FAMILY)
#   --build-arg N=V    another argument of the Dockerfile, for example MEGATRON_URL=...
#   --dry-run          print the command on stdout and build nothing
#
# PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST and PIP_NO_INDEX are handed on when set.
# DOCKER names the engine, PYTHON the Python that reads releases.yaml.

set -euo pipefail
shopt -s inherit_errexit

REPO=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
: "${DOCKER:=docker}"

# shellcheck source=../templates/lib/messages.sh
source "$REPO/templates/lib/messages.sh"
# shellcheck source=../templates/lib/options.sh
source "$REPO/templates/lib/options.sh"
# shellcheck source=lib/image.sh
source "$REPO/docker/lib/image.sh"

# read_options <word>...
read_options() {
  local option
  mode='' model='' release='' chip='' family='' src='' base='' tag='' extra=()
  while (($# > 0)); do
    option=$1
    shift
    case $option in
      -h | --help) mode=--help ;;
      --dry-run) mode=--dry-run ;;
      --model | --release | --chip | --family | --src | --base | --tag | --build-arg)
        need_value "$option" $#
        set_option "${option#--}" "$1"
        shift
        ;;
      --*=*) set -- "${option%%=*}" "${option#*=}" "$@" ;;
      *) die 2 "'$option' is no option" "command line" "the image is described by options" "see --help" ;;
    esac
  done
}

# set_option <name> <value>
set_option() {
  case $1 in
    build-arg) extra+=("$2") ;;
    *) printf -v "$1" '%s' "$2" ;;
  esac
}

# check_sources: what --src names must look like what it is taken for
check_sources() {
  local found=() name
  if [[ -z $src ]]; then
    return
  elif [[ ! -d $src ]]; then
    die 2 "the folder '$src' does not exist" "--src" "sources are taken from it" "name an existing folder"
  fi
  src=$(CDPATH='' cd -- "$src" && pwd)
  for name in "${source_names[@]}"; do
    if [[ -d $src/$name ]]; then
      found+=("$name")
    fi
  done
  if ((${#found[@]} == 0)); then
    problem 2 "'$src' holds no source" "--src" "folders are found by their names" \
      "name the folder that contains some of: ${source_names[*]}"
  fi
  check_source MindSpeed-MM pretrain_vlm.py
  check_source Megatron-LM megatron
  sources=("${found[@]}")
}

# check_source <name> <file that it must hold>
check_source() {
  if [[ -d $src/$1 && ! -e $src/$1/$2 ]]; then
    problem 2 "'$src/$1' is no checkout of $1" "--src" "it lacks $2" "put a whole checkout there"
  fi
}

# check_secrets <NAME=value>...: arguments of a build stay readable in the image
check_secrets() {
  local argument
  for argument; do
    if [[ $argument =~ ://[^/]*@ ]]; then
      problem 2 "${argument%%=*} holds a user name or password" "environment or --build-arg" \
        "anyone who has the image can read the arguments of its build" \
        "use an address without credentials, for example of a mirror inside your network"
    elif [[ $argument != [A-Za-z_]*=* ]]; then
      problem 2 "'$argument' is no argument of a build" "--build-arg" "it needs a name and a value" \
        "write --build-arg NAME=VALUE"
    fi
  done
}

# add_argument <NAME=value>: the last value of a name is the one that counts
add_argument() {
  local other kept=()
  for other in "${build_arguments[@]}"; do
    if [[ ${other%%=*} != "${1%%=*}" ]]; then
      kept+=("$other")
    fi
  done
  build_arguments=("${kept[@]}" "$1")
}

# set_build_arguments: the release's, then pip's from the environment, then the caller's, which win
set_build_arguments() {
  local name argument
  build_arguments=("${image_facts[@]:1}")
  if [[ -n $base ]]; then
    add_argument "BASE_IMAGE=$base"
  fi
  for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_NO_INDEX; do
    if [[ -n ${!name:-} ]]; then
      add_argument "$name=${!name}"
    fi
  done
  if [[ -e $REPO/.git ]] && type -P git >/dev/null; then
    add_argument "PACK_REVISION=$(git -C "$REPO" rev-parse HEAD)"
  fi
  check_secrets "${build_arguments[@]}" "${extra[@]}"
  for argument in "${extra[@]}"; do
    add_argument "$argument"
  done
  check_base
}

# check_base: wherever the base comes from, it says its version
check_base() {
  local argument
  for argument in "${build_arguments[@]}"; do
    if [[ $argument == BASE_IMAGE=* ]]; then
      check_image_name "${argument#*=}" "the base image (--base)"
    fi
  done
}

# set_commands: the context goes in as a stream, so that DIR need not lie inside the repository and
# neither .git nor .venv of it is sent
set_commands() {
  local argument names
  pack=(tar --create --directory "$REPO" --exclude=__pycache__ --exclude='*.egg-info')
  if ((${#sources[@]} > 0)); then
    names=$(IFS='|' && printf '%s' "${sources[*]}")
    pack+=("--transform=s,^(${names})(/|\$),docker/sources/\\1\\2,xS")
  fi
  pack+=(docker tasks templates tools pyproject.toml README.md LICENSE)
  if ((${#sources[@]} > 0)); then
    pack+=(--directory "$src" "${sources[@]}")
  fi
  build=("$DOCKER" build --file docker/Dockerfile --tag "$tag")
  for argument in "${build_arguments[@]}"; do
    build+=(--build-arg "$argument")
  done
  build+=(-)
}

main() {
  problem_codes=()
  source_names=(MindSpeed-MM Megatron-LM MindSpeed transformers wheels)
  sources=()
  read_options "$@"
  if [[ $mode == --help ]]; then
    show_usage "${BASH_SOURCE[0]}"
    return
  fi
  check_sources
  describe_image "$model" "$release" "$chip" "$family"
  : "${tag:=${image_facts[0]#IMAGE=}}"
  check_image_name "$tag" --tag
  set_build_arguments
  stop_on_problems
  set_commands
  if [[ $mode == --dry-run ]]; then
    printf '%s | %s\n' "$(show_command "${pack[@]}")" "$(show_command "${build[@]}")"
    return
  fi
  check_docker
  stop_on_problems
  "${pack[@]}" | "${build[@]}"
  note "built $tag"
}

main "$@"
