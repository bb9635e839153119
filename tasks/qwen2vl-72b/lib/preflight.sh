# shellcheck shell=bash
# What must be in place before NPUs are occupied. Every function reports and goes on.

# check_checkout <file>...: the entry script, and the rendered json that it reads
check_checkout() {
  local file
  if [[ ! -f $ENTRY ]]; then
    problem 5 "$CHECKOUT is no MindSpeed-MM checkout" "$CHECKOUT/$ENTRY" \
      "the scripts run MindSpeed-MM from the folder that contains tasks/" \
      "cp -r tasks ~/MindSpeed-MM/ (or where the checkout is) and start the copy there"
  fi
  for file; do
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

# check_port: a second run on this machine would meet the ranks of the first
check_port() {
  if ((NODE_RANK == 0)) && (: <"/dev/tcp/127.0.0.1/$MASTER_PORT") 2>/dev/null; then
    problem 5 "something listens on port $MASTER_PORT already" "MASTER_PORT on this machine" \
      "the ranks of this run meet there" "stop the other run, or set another MASTER_PORT on every node"
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

# note_overwriting: going on from an earlier iteration than the last writes over what came after it
note_overwriting() {
  local last
  last=$(read_tracker "$SAVE_PATH")
  if [[ $RESUME_ITERATION =~ ^[0-9]+$ && $last =~ ^[0-9]{1,9}$ ]] && ((10#$last > RESUME_ITERATION)); then
    note "note: $SAVE_PATH reaches iteration $last; going on from $RESUME_ITERATION will write over what came after it"
  fi
}

# check_input <json> <key of the profile> <file>
check_input() {
  if [[ ! -r $3 ]]; then
    problem 4 "the file '$3' cannot be read" "$1, seen from $CHECKOUT" "the run reads it" \
      "put it there, or change $2 in $TASK/profile.yaml and render"
  fi
}

# check_hf_folder <folder>: tokenizer and processor come from it
check_hf_folder() {
  if [[ ! -f $1/config.json ]] || ! compgen -G "$1/*processor_config.json" >/dev/null; then
    problem 3 "the HF folder '$1' lacks config.json or its processor configuration" \
      "hf.dir of $TASK/profile.yaml, seen from $CHECKOUT" \
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
  if [[ ! -f $tracker ]]; then
    return
  fi
  if [[ -n $RESUME_ITERATION$RESTART_FROM ]]; then
    note_overwriting
    return
  fi
  if [[ $SAVE_PATH -ef $LOAD_PATH ]]; then
    problem 2 "SAVE_PATH and LOAD_PATH are both '$SAVE_PATH'" "environment or settings of this script" \
      "the first save would move the tracker away from the weights that the run starts from" \
      "set another SAVE_PATH"
  else
    note "note: $SAVE_PATH holds iteration $(read_tracker "$SAVE_PATH") of an earlier run; this run writes into the same folder"
  fi
}
