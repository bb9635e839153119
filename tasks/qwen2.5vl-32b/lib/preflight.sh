# shellcheck shell=bash
# What must be in place before NPUs are occupied. Every function reports and goes on.

# check_checkout: the trainer and the rendered json
check_checkout() {
  local file
  if [[ ! -f $ENTRY ]]; then
    problem 5 "$CHECKOUT is no MindSpeed-MM checkout" "$CHECKOUT/$ENTRY" \
      "the scripts run MindSpeed-MM from the folder that contains tasks/" \
      "cp -r tasks ~/MindSpeed-MM/ (or where the checkout is) and start the copy there"
  fi
  for file in "$TASK/model.json" "$TASK/data.json"; do
    if [[ ! -f $file ]]; then
      problem 2 "$file is missing" "$CHECKOUT" "the trainer reads it" "copy the whole folder $TASK"
    fi
  done
}

# check_program <name> <how to get it>
check_program() {
  if ! type -P "$1" >/dev/null; then
    problem 5 "$1 is not on PATH" "PATH=$PATH" "the training starts with it" "$2"
  fi
}

# check_devices: fewer NPUs than processes would end in an obscure aclInit error
check_devices() {
  local devices=(/dev/davinci[0-9]*)
  if [[ -e ${devices[0]} ]] && ((${#devices[@]} < NPUS_PER_NODE)); then
    problem 5 "NPUS_PER_NODE is $NPUS_PER_NODE, and this machine has ${#devices[@]} NPUs" "/dev/davinci*" \
      "torchrun starts one process per NPU" \
      "set NPUS_PER_NODE=${#devices[@]} on every node, or give the container all devices"
  fi
}

# check_data <file>...: the sample lists
check_data() {
  local file
  for file; do
    if [[ ! -r $file ]]; then
      problem 4 "the data file '$file' cannot be read" "$TASK/data.json, seen from $CHECKOUT" \
        "the trainer reads its samples from it" \
        "put it there, or change data.files in $TASK/profile.yaml and render"
    fi
  done
}

# check_hf_folder <folder>: tokenizer and processor come from it
check_hf_folder() {
  if [[ ! -f $1/config.json ]] || ! compgen -G "$1/*processor_config.json" >/dev/null; then
    problem 3 "the HF folder '$1' lacks config.json or its processor configuration" \
      "model_name_or_path in $TASK/data.json, seen from $CHECKOUT" \
      "every node reads tokenizer and image processor from it" "bash $TASK/download_weights.sh"
  fi
}

# check_save_path: the first save comes hours after the start
check_save_path() {
  local tracker=$SAVE_PATH/latest_checkpointed_iteration.txt parent=$SAVE_PATH
  while [[ ! -e $parent ]]; do
    parent=$(dirname -- "$parent")
  done
  if [[ ! -d $parent || ! -w $parent ]]; then
    problem 5 "SAVE_PATH '$SAVE_PATH' cannot be written" "$parent, seen from $CHECKOUT" \
      "checkpoints go there" "make $parent a folder that $(id -un) may write to, or set another SAVE_PATH"
  fi
  if [[ -n $RESUME_ITERATION || ! -f $tracker ]]; then
    return
  fi
  if [[ $SAVE_PATH -ef $LOAD_PATH ]]; then
    problem 2 "SAVE_PATH and LOAD_PATH are both '$SAVE_PATH'" "environment or settings of this script" \
      "the first save would move the tracker away from the weights that the run starts from" \
      "set another SAVE_PATH"
  else
    note "note: $SAVE_PATH holds iteration $(tr -d '[:space:]' <"$tracker") of an earlier run; this run writes into the same folder"
  fi
}

# check_checkpoint <name> <folder> <iteration, or nothing for the tracker's> <layout line>...
check_checkpoint() {
  local name=$1 folder=$2 place="$1=$2, seen from $CHECKOUT"
  if [[ ! -d $folder ]]; then
    problem 3 "the checkpoint folder '$folder' does not exist" "$place" \
      "the training starts from it" "bash $TASK/convert_hf_to_mm.sh"
  elif compgen -G "$folder/*.safetensors*" >/dev/null; then
    problem 3 "'$folder' holds HF weights (safetensors)" "$place" \
      "MindSpeed-MM loads its own format only" \
      "bash $TASK/convert_hf_to_mm.sh, and set $name to the folder that it writes"
  elif [[ ! -f $folder/latest_checkpointed_iteration.txt ]]; then
    problem 3 "'$folder' has no latest_checkpointed_iteration.txt" "$place" \
      "without it Megatron trains from random weights" \
      "finish the copy or the conversion that makes this folder: bash $TASK/convert_hf_to_mm.sh"
  else
    check_rank_files "$name" "$folder" "$3"
    check_layout "$folder" "${@:4}"
  fi
}

# iteration_folder <tracker text>
iteration_folder() {
  if [[ $1 == release ]]; then
    printf 'release'
  elif [[ $1 =~ ^[0-9]{1,9}$ ]]; then
    printf 'iter_%07d' "$((10#$1))"
  fi
}

# list_iterations <folder>
list_iterations() {
  local path names=()
  for path in "$1"/release "$1"/iter_*; do
    if [[ -d $path ]]; then
      names+=("${path##*/}")
    fi
  done
  printf '%s' "${names[*]:-none is}"
}

# node_rank_folders: the rank folders that the NPUs of this node read. Megatron numbers ranks
# with TP fastest, then CP, DP, and the stage last.
node_rank_folders() {
  local first=$((NODE_RANK * NPUS_PER_NODE)) rank
  for ((rank = first; rank < first + NPUS_PER_NODE; rank++)); do
    if ((PP > 1)); then
      printf 'mp_rank_%02d_%03d\n' $((rank % TP)) $((rank / (TP * CP * DP)))
    else
      printf 'mp_rank_%02d\n' $((rank % TP))
    fi
  done | sort -u
}

# check_rank_files <name> <folder> <iteration, or nothing for the tracker's>
check_rank_files() {
  local name=$1 folder=$2 tracker step rank missing=()
  tracker=$(tr -d '[:space:]' <"$folder/latest_checkpointed_iteration.txt")
  step=$(iteration_folder "${3:-$tracker}")
  if [[ -z $step || ! -d $folder/$step ]]; then
    problem 3 "iteration '${3:-$tracker}' is not in '$folder'" \
      "${3:+resume.iteration of $TASK/profile.yaml, and }$folder/latest_checkpointed_iteration.txt" \
      "Megatron loads the folder of that iteration" \
      "use an iteration that is there: $(list_iterations "$folder")"
    return
  fi
  for rank in $(node_rank_folders); do
    if [[ ! -s $folder/$step/$rank/model_optim_rng.pt ]]; then
      missing+=("$rank")
    fi
  done
  if ((${#missing[@]} > 0)); then
    problem 3 "${#missing[@]} rank files that node $NODE_RANK reads are missing, the first is '${missing[0]}/model_optim_rng.pt'" \
      "$name=$folder/$step" "TP $TP x PP $PP needs: $(node_rank_folders | tr '\n' ' ')" \
      "copy the folder to this node, or convert for this layout: bash $TASK/convert_hf_to_mm.sh"
  fi
}

# bare_line <json line>: without indent, comma and carriage return
bare_line() {
  sed 's/^[[:space:]]*//; s/[[:space:]]*$//; s/,$//' <<<"$1"
}

# check_layout <folder> <expected line>...: taskpack_layout.json against the profile
check_layout() {
  local file=$1/taskpack_layout.json line expected key found
  if [[ ! -f $file ]]; then
    note "note: $file is absent, so the layout of these weights is not checked"
    return
  fi
  for line in "${@:2}"; do
    expected=$(bare_line "$line")
    key=${expected%%:*}
    found=$(bare_line "$(grep -m 1 -F -- "$key:" "$file" || true)")
    if [[ $found != "$expected" ]]; then
      problem 3 "these weights have ${found:-no $key}, the profile has $expected" "$file" \
        "weights of another layout load as partly random weights, without an error" \
        "convert again for this profile: bash $TASK/convert_hf_to_mm.sh"
    fi
  done
}
