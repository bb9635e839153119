# shellcheck shell=bash
# The weights that a run starts from. Every check reports and goes on; CONVERT is what makes them.

# check_checkpoint <name> <folder> <iteration, or nothing or latest for the tracker's> <layout line>...
check_checkpoint() {
  local name=$1 folder=$2 place="$1=$2, seen from $CHECKOUT"
  if [[ ! -d $folder ]]; then
    problem 3 "the checkpoint folder '$folder' does not exist" "$place" \
      "the run starts from it" "$CONVERT"
  elif compgen -G "$folder/*.safetensors*" >/dev/null; then
    problem 3 "'$folder' holds HF weights (safetensors)" "$place" \
      "MindSpeed-MM loads its own format only" \
      "$CONVERT, and set $name to the folder that it writes"
  elif [[ ! -f $folder/latest_checkpointed_iteration.txt ]]; then
    problem 3 "'$folder' has no latest_checkpointed_iteration.txt" "$place" \
      "without it Megatron trains from random weights" \
      "finish the copy or the conversion that makes this folder: $CONVERT"
  else
    check_rank_files "$name" "$folder" "$3"
    check_layout "$folder" "${@:4}"
  fi
}

# check_base <name> <folder> <iteration, or nothing or latest for the tracker's>: whole weights, no adapter.
# The trainer would start from random weights beneath an adapter. Names come first in such files.
check_base() {
  local name=$1 folder=$2 step rank file
  step=$(chosen_step "$folder" "$3")
  for rank in $(node_rank_folders); do
    file=$folder/$step/$rank/model_optim_rng.pt
    if [[ -f $file ]] && LC_ALL=C grep -aqE 'lora_[AB]\.' < <(head -c 8388608 -- "$file"); then
      problem 3 "'$folder' holds a LoRA adapter, not the weights below it" "$name=$folder/$step/$rank" \
        "without an error everything but the adapter would stay random" \
        "set $name to the converted weights; to go on with the adapter set resume.iteration in $TASK/profile.yaml and render"
      return
    fi
  done
}

# check_hf_weights <name> <folder>: weights that are loaded without a conversion
check_hf_weights() {
  if ! compgen -G "$2/*.safetensors" >/dev/null; then
    problem 3 "the HF folder '$2' holds no safetensors" "$1, seen from $CHECKOUT" \
      "hf.online loads them; without them the model would start from random weights" \
      "bash $TASK/download_weights.sh, or set $1"
  fi
}

# check_dcp_checkpoint <name> <folder> <iteration, or nothing or latest for the tracker's>: what FSDP2 saved
check_dcp_checkpoint() {
  local step
  step=$(chosen_step "$2" "$3")
  if [[ -z $step || ! -f $2/$step/.metadata ]]; then
    problem 3 "'$2' holds no checkpoint of iteration '$3' in DCP form" "$1, seen from $CHECKOUT" \
      "FSDP2 saves and resumes in torch's DCP form, which has a .metadata file" \
      "use an iteration that is there: $(list_iterations "$2")"
  fi
}

# read_tracker <folder>: the iteration that it names, if any
read_tracker() {
  if [[ -f $1/latest_checkpointed_iteration.txt ]]; then
    tr -d '[:space:]' <"$1/latest_checkpointed_iteration.txt"
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

# chosen_step <folder> <iteration, or nothing or latest for the tracker's>: its folder's name
chosen_step() {
  local step=${2#latest}
  iteration_folder "${step:-$(read_tracker "$1")}"
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

# check_rank_files <name> <folder> <iteration, or nothing or latest for the tracker's>
check_rank_files() {
  local name=$1 folder=$2 wanted=${3#latest} step rank missing=()
  step=$(chosen_step "$folder" "$3")
  if [[ -z $step || ! -d $folder/$step ]]; then
    problem 3 "iteration '${wanted:-$(read_tracker "$folder")}' is not in '$folder'" \
      "${wanted:+resume.iteration of $TASK/profile.yaml, and }$folder/latest_checkpointed_iteration.txt" \
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
      "copy the folder to this node, or convert for this layout: $CONVERT"
  fi
}

# bare_line <json line>: without indent, comma and carriage return
bare_line() {
  sed 's/^[[:space:]]*//; s/[[:space:]]*$//; s/,$//' <<<"$1"
}

# check_layout <folder> <line>...: taskpack_layout.json of the weights that are loaded
check_layout() {
  local file=$1/taskpack_layout.json
  if [[ ! -f $file ]]; then
    note "note: $file is absent, so the layout of these weights is not checked"
    return
  fi
  compare_layout "$file" "weights of another layout load as partly random weights, without an error" \
    "convert again for this profile: $CONVERT" "${@:2}"
}

# check_save_layout <line>...: an earlier run into SAVE_PATH must have been one of this layout
check_save_layout() {
  local file=$SAVE_PATH/taskpack_layout.json
  if [[ -f $file ]]; then
    compare_layout "$file" "checkpoints of two layouts in one folder cannot be told apart" \
      "set another SAVE_PATH, or move the earlier run away" "$@"
  fi
}

# compare_layout <file> <why> <fix> <line>...: the layout file against the profile
compare_layout() {
  local file=$1 line expected key found
  for line in "${@:4}"; do
    expected=$(bare_line "$line")
    key=${expected%%:*}
    found=$(bare_line "$(grep -m 1 -F -- "$key:" "$file" || true)")
    if [[ $found != "$expected" ]]; then
      problem 3 "these weights have ${found:-no $key}, the profile has $expected" "$file" "$2" "$3"
    fi
  done
}
