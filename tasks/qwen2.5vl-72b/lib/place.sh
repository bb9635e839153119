# shellcheck shell=bash
# The place of this node: NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT and NPUS_PER_NODE. The caller's
# environment wins over HOSTFILE, HOSTFILE over the platform, the platform over the profile.

# read_platform: sets platform and fills found. PLATFORM=none looks at no platform.
read_platform() {
  platform=${PLATFORM:-auto}
  case $platform in
    auto) platform=$(detect_platform) ;;
    none) platform='' ;;
    modelarts | ascendjob | volcano | kubeflow | slurm) ;;
    *)
      problem 2 "PLATFORM is '$platform'" "environment" "it says whose variables place this node" \
        "use auto, none, modelarts, ascendjob, volcano, kubeflow or slurm"
      return
      ;;
  esac
  if [[ -n $platform ]]; then
    "read_$platform"
  fi
}

# adopt_platform: settles the five variables as far as the caller and the platform know them
adopt_platform() {
  local name
  declare -gA found=() origin=([NODE_RANK]=default [MASTER_ADDR]=default)
  platform=''
  if [[ -z ${HOSTFILE:-} ]]; then
    read_platform
  fi
  for name in "${!given[@]}"; do
    if [[ -n ${found[$name]:-} && ${given[$name]:-${found[$name]}} == "${found[$name]}" ]]; then
      origin[$name]=$platform
      printf -v "$name" '%s' "${found[$name]}"
    elif [[ -n ${given[$name]} ]]; then
      origin[$name]=environment
    fi
  done
  forget_ranks
}

# forget_ranks: torchrun and HCCL would follow what another launcher set
forget_ranks() {
  local names=()
  mapfile -t names < <(compgen -A variable PET_)
  unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE \
    TORCHELASTIC_RUN_ID RANK_TABLE_FILE RANK_ID RANK_SIZE ASCEND_DEVICE_ID DEVICE_ID "${names[@]}"
}

# show_place: what was chosen, and from where
show_place() {
  local name text=''
  if ((NNODES == 1)) && [[ -z $platform ]]; then
    return
  fi
  for name in NNODES NODE_RANK MASTER_ADDR MASTER_PORT NPUS_PER_NODE; do
    text+=", $name=${!name} (${origin[$name]:-profile})"
  done
  note "place: ${text#, }"
}

# wait_for_master: names of a job's pods appear a while after the pods
wait_for_master() {
  local started=$SECONDS
  if [[ -z $platform || ${origin[MASTER_ADDR]} != "$platform" || $NODE_RANK == 0 ]]; then
    return
  fi
  until getent ahosts "$MASTER_ADDR" >/dev/null; do
    if ((SECONDS - started >= MASTER_WAIT_SECONDS)); then
      die 5 "the name '$MASTER_ADDR' of the master cannot be resolved after $MASTER_WAIT_SECONDS s" "MASTER_ADDR" \
        "every node must reach the first one" \
        "look whether that node started; raise MASTER_WAIT_SECONDS if it is slow"
    fi
    sleep 2
  done
}
