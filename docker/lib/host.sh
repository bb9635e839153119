# shellcheck shell=bash disable=SC2154 # run.sh sets the options
# What a container takes from this host: device nodes of the NPUs and files of the driver.
# HOST_ROOT goes in front of the host's paths and DEVICE_DIR replaces /dev; tests set both.

# find_npus: fills found with the numbers of this host's NPUs. davinci_manager is none of them.
find_npus() {
  local node
  found=()
  for node in "$DEVICE_DIR"/davinci[0-9]*; do
    if [[ -e $node && ${node##*/} =~ ^davinci([0-9]+)$ ]]; then
      found+=("${BASH_REMATCH[1]}")
    fi
  done
  # a pattern gives davinci10 before davinci2
  mapfile -t found < <(printf '%s\n' "${found[@]}" | sort -n | sed '/^$/d')
}

# expand_list <list>: the numbers of "0-3,6", one a line; fails where it is no such list
expand_list() {
  local part parts
  IFS=, read -ra parts <<<"$1"
  for part in "${parts[@]}"; do
    if [[ $part =~ ^([0-9]{1,3})-([0-9]{1,3})$ ]] && ((10#${BASH_REMATCH[1]} <= 10#${BASH_REMATCH[2]})); then
      seq "$((10#${BASH_REMATCH[1]}))" "$((10#${BASH_REMATCH[2]}))"
    elif [[ $part =~ ^[0-9]{1,3}$ ]]; then
      printf '%d\n' "$((10#$part))"
    else
      return 1
    fi
  done
}

# choose_npus <list, or nothing for all, or none>: fills npus
choose_npus() {
  local list=$1 chosen missing
  find_npus
  npus=()
  if [[ $list == none ]]; then
    return
  elif ((${#found[@]} == 0)); then
    problem 5 "this host shows no NPU" "$DEVICE_DIR/davinci[0-9]*" "a container gets the nodes that are there" \
      "load the driver, or say --npus none for work that needs no NPU"
  elif [[ -z $list ]]; then
    npus=("${found[@]}")
  elif ! chosen=$(expand_list "$list") || [[ -z $chosen || $list == *, ]]; then
    problem 2 "'$list' is no list of NPUs" "--npus" "it names NPUs by number" "write it like 0-3 or 0,2,4-7"
  else
    mapfile -t npus < <(sort -nu <<<"$chosen")
    missing=$(comm -23 <(printf '%s\n' "${npus[@]}" | sort) <(printf '%s\n' "${found[@]}" | sort) | sort -n)
    if [[ -n $missing ]]; then
      problem 5 "NPUs that do not exist: $(paste -sd ' ' <<<"$missing")" "--npus $list" \
        "this host has: ${found[*]}" "name some of those"
    fi
  fi
}

# check_free: a second container that opens an NPU makes both fail
check_free() {
  local containers=() line npu
  mapfile -t containers < <("$DOCKER" ps --quiet 2>/dev/null)
  if ((${#containers[@]} == 0)); then
    return
  fi
  while IFS= read -r line; do
    for npu in "${npus[@]}"; do
      if [[ "$line " == *" $DEVICE_DIR/davinci$npu "* ]]; then
        problem 5 "NPU $npu is in use" "container ${line%% *}" "an NPU serves one container at a time" \
          "stop that container, or choose other NPUs with --npus"
      fi
    done
  done < <("$DOCKER" inspect --format '{{.Name}}{{range .HostConfig.Devices}} {{.PathOnHost}}{{end}}' \
    "${containers[@]}" 2>/dev/null)
}

# npu_list: npus with commas
npu_list() {
  local IFS=,
  printf '%s' "${npus[*]}"
}

# find_prefix: sets ASCEND_PREFIX to the folder that holds the driver. The caller's wins, then what
# the driver's installer wrote down, then the usual folders.
find_prefix() {
  local info=$HOST_ROOT/etc/ascend_install.info prefix noted=''
  if [[ -n ${ASCEND_PREFIX:-} ]]; then
    return
  fi
  if [[ -r $info ]]; then
    noted=$(sed -n 's/^Driver_Install_Path_Param=//p' "$info" | tr -d '"\r' | tail -n 1)
  fi
  for prefix in "$noted" /usr/local/Ascend /usr/local/npu; do
    if [[ $prefix == /* && -d $HOST_ROOT$prefix/driver ]]; then
      ASCEND_PREFIX=${prefix%/}
      return
    fi
  done
  ASCEND_PREFIX=/usr/local/Ascend
}

# has_ascend_runtime: the engine has the vendor's runtime, which adds devices and driver itself
has_ascend_runtime() {
  case $runtime in
    ascend) return 0 ;;
    none) return 1 ;;
  esac
  [[ $("$DOCKER" info --format '{{json .Runtimes}}' 2>/dev/null) == *'"ascend"'* ]]
}

# add_bind <path on the host> <path in the container> [readonly]: adds a mount. The long form, since -v
# makes a folder that is missing, as root, and takes a colon for its separator.
add_bind() {
  arguments+=(--mount "type=bind,source=$1,target=$2${3:+,readonly}")
}

# add_host_paths <path>...: read-only, those that exist
add_host_paths() {
  local path
  for path; do
    if [[ -e $HOST_ROOT$path ]]; then
      add_bind "$HOST_ROOT$path" "$path" readonly
    fi
  done
}

# add_device <node below DEVICE_DIR>
add_device() {
  arguments+=(--device "$DEVICE_DIR/$1:/dev/$1")
}

# add_shared_devices: all NPUs of a host share three nodes; newer generations add folders of nodes
add_shared_devices() {
  local name node
  for name in davinci_manager devmm_svm hisi_hdc; do
    if [[ -e $DEVICE_DIR/$name ]]; then
      add_device "$name"
    else
      problem 5 "the device $name is missing" "$DEVICE_DIR/$name" \
        "every process on an NPU opens it" "load the driver on this host: npu-smi info must work there"
    fi
  done
  for node in "$DEVICE_DIR"/uburma/* "$DEVICE_DIR"/ummu/*; do
    if [[ -e $node ]]; then
      add_device "${node#"$DEVICE_DIR/"}"
    fi
  done
}

# add_npus_by_runtime: its own mounts lack the files that checks read
add_npus_by_runtime() {
  local list
  list=$(npu_list)
  arguments+=(--runtime ascend --env "ASCEND_VISIBLE_DEVICES=${list:-void}")
  if ((${#npus[@]} > 0)); then
    add_host_paths "$ASCEND_PREFIX/driver/version.info" "$ASCEND_PREFIX/driver/tools/hccn_tool" \
      /etc/ascend_install.info /etc/hccn.conf /etc/localtime
  fi
}

# add_npus_by_device: nodes and driver one by one
add_npus_by_device() {
  local npu
  if ((${#npus[@]} == 0)); then
    return
  fi
  check_free
  for npu in "${npus[@]}"; do
    add_device "davinci$npu"
  done
  add_shared_devices
  if [[ ! -d $HOST_ROOT$ASCEND_PREFIX/driver ]]; then
    problem 5 "no driver in '$ASCEND_PREFIX/driver'" "ASCEND_PREFIX" \
      "processes in the container load its libraries" \
      "set ASCEND_PREFIX to the folder that holds driver/, for example /usr/local/npu"
  fi
  add_host_paths "$ASCEND_PREFIX/driver" "$ASCEND_PREFIX/add-ons" /usr/local/dcmi \
    /usr/local/bin/npu-smi /usr/local/sbin/npu-smi \
    /etc/ascend_install.info /etc/hccn.conf /etc/localtime
}
