# shellcheck shell=bash
# shellcheck disable=SC2154 # the script sets what it hands to these functions
# Going on from what the run saved: which iteration is complete, and the start from it.

# check_restarts <why this variant cannot, or nothing>
check_restarts() {
  if ((MAX_RESTARTS == 0)) && [[ -z $RESTART_FROM ]]; then
    return
  fi
  if [[ -n $1 ]]; then
    problem 2 "MAX_RESTARTS=$MAX_RESTARTS RESTART_FROM='$RESTART_FROM' cannot be with this profile" \
      "$TASK/profile.yaml" "$1" "unset both; resume with resume.iteration in $TASK/profile.yaml"
  elif ((NNODES > 1 && MAX_RESTARTS > 0)) && [[ $STOP_WITH_STDIN != 1 ]]; then
    problem 2 "MAX_RESTARTS is $MAX_RESTARTS on one of $NNODES nodes" "environment" \
      "all nodes have to stop, and to go on from the same iteration" \
      "HOSTFILE=<file> MAX_RESTARTS=$MAX_RESTARTS bash $TASK/launch_all.sh"
  fi
  if [[ -n $RESTART_FROM && ! $RESTART_FROM =~ ^[1-9][0-9]{0,8}$ ]]; then
    problem 2 "RESTART_FROM is '$RESTART_FROM'" "environment" "it names an iteration in SAVE_PATH" \
      "use the number of one that is there: $(list_iterations "$SAVE_PATH")"
  fi
}

# check_restart_from: what this node reads of that iteration must be whole
check_restart_from() {
  if [[ $RESTART_FROM =~ ^[1-9][0-9]{0,8}$ ]] && ! is_complete "$(iteration_folder "$RESTART_FROM")"; then
    problem 3 "iteration $RESTART_FROM in '$SAVE_PATH' is not complete for node $NODE_RANK" "RESTART_FROM, and SAVE_PATH" \
      "a part of it would leave random weights" "use an iteration that is: $(complete_iterations | tr '\n' ' ')"
  fi
}

# resume_path: the folder with a tracker of its own that the trainer resumes from
resume_path() {
  if [[ -n $RESTART_FROM ]]; then
    printf '%s' "${SAVE_PATH%/}.resume_$RESTART_FROM"
  else
    printf '%s' "${LOAD_PATH%/}.resume_$RESUME_ITERATION"
  fi
}

# make_resume_folder: RESUME_PATH, where the start needs one
make_resume_folder() {
  if [[ -n $RESTART_FROM ]]; then
    view_iteration "$SAVE_PATH" "$RESTART_FROM" "$RESUME_PATH"
  elif [[ $RESUME_ITERATION =~ ^[0-9]+$ ]]; then
    view_iteration "$LOAD_PATH" "$RESUME_ITERATION" "$RESUME_PATH"
  fi
}

# start_mark: a file in SAVE_PATH, so that one clock tells what was saved after it
start_mark() {
  printf '%s' "$SAVE_PATH/.taskpack_start.node$NODE_RANK"
}

# mark_start: what SAVE_PATH holds already belongs to an earlier run
mark_start() {
  if ((MAX_RESTARTS > 0)) && [[ -z $RESTART_FROM ]]; then
    mkdir -p -- "$SAVE_PATH" && : >"$(start_mark)"
  fi
}

# is_complete <name of an iteration's folder>: every rank folder that the NPUs of this node read has its
# weights, and each file is whole: torch writes zip archives, whose last record comes last
is_complete() {
  local rank file
  for rank in $(node_rank_folders); do
    if [[ ! -s $SAVE_PATH/$1/$rank/model_optim_rng.pt ]]; then
      return 1
    fi
    for file in "$SAVE_PATH/$1/$rank"/*.pt; do
      if [[ $(tail -c 22 -- "$file" | head -c 4 | tr -d '\0') != $'PK\5\6' ]]; then
        return 1
      fi
    done
  done
}

# complete_iterations: those that this node could go on from, newest first. Megatron moves the tracker
# when all ranks have written, and only the first node of nodes without shared storage has one.
complete_iterations() {
  local path number newest
  newest=$(read_tracker "$SAVE_PATH")
  if [[ -z $newest && $NODE_RANK != 0 ]]; then
    newest=999999999
  elif [[ ! $newest =~ ^[0-9]{1,9}$ ]]; then
    return
  fi
  for path in "$SAVE_PATH"/iter_*; do
    number=${path##*/iter_}
    if [[ $number =~ ^[0-9]{7,9}$ ]] && ((10#$number <= 10#$newest)) && is_complete "${path##*/}"; then
      printf '%s\n' $((10#$number))
    fi
  done | sort -rn
}

# saved_iterations: the complete ones of this run
saved_iterations() {
  local mark number rank saved
  mark=$(start_mark)
  if [[ ! -f $mark ]]; then
    return
  fi
  rank=$(node_rank_folders | sed -n 1p)
  for number in $(complete_iterations); do
    saved=$SAVE_PATH/$(iteration_folder "$number")/$rank/model_optim_rng.pt
    if [[ ! $mark -nt $saved ]]; then
      printf '%s\n' "$number"
    fi
  done
}

# run_with_restarts <name>: runs the command in start, and after a failure again from the newest complete
# iteration of this run, MAX_RESTARTS times
run_with_restarts() {
  local attempt status iteration
  mark_start || return
  for ((attempt = 1; ; attempt++)); do
    status=0
    make_resume_folder || return
    run_with_log "$1" "${start[@]}" || status=$?
    if ((status == 0 || attempt > MAX_RESTARTS)) || [[ $stop_asked == 1 || $STOP_WITH_STDIN == 1 ]]; then
      return "$status"
    fi
    end_leftovers
    iteration=$(saved_iterations | sed -n 1p)
    RESTART_FROM=${iteration:-$RESTART_FROM}
    note "restart $attempt of $MAX_RESTARTS: from ${RESTART_FROM:+iteration }${RESTART_FROM:-the beginning, since no complete checkpoint was saved}"
    set_start
  done
}
