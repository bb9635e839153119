#!/usr/bin/env bats
# docker/build.sh and the scripts that run inside the build, with a stand-in for docker.

setup() {
  load helpers
  CALLS=$BATS_TEST_TMPDIR/calls
  BIN=$BATS_TEST_TMPDIR/bin
  SRC="$BATS_TEST_TMPDIR/the sources"
  mkdir -p "$CALLS" "$BIN" "$SRC"
  export CALLS PATH="$BIN:/usr/bin:/bin"
  unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_NO_INDEX DOCKER PYTHON
  stub docker 'if [[ $1 == build ]]; then tar --list >"$CALLS/context"; fi'
  cd "$BATS_TEST_TMPDIR" || return
}

build_sh() {
  bash "$REPO/docker/build.sh" "$@"
}

# has <word> [<word behind it>]: in the command behind the pipe
has() {
  local words
  words=$(eval "printf '%s\n' ${output#* | }")
  if (($# == 1)); then
    grep -Fxq -- "$1" <<<"$words"
  else
    grep -Fx -A 1 -- "$1" <<<"$words" | grep -Fxq -- "$2"
  fi
}

# lists_none <pattern> <file>
lists_none() {
  if grep -E "$1" "$2"; then
    return 1
  fi
}

# with_sources: what an offline site has
with_sources() {
  mkdir -p "$SRC/MindSpeed-MM/tasks" "$SRC/Megatron-LM/megatron/core" "$SRC/MindSpeed/docker" "$SRC/wheels"
  touch "$SRC/MindSpeed-MM/pretrain_vlm.py" "$SRC/Megatron-LM/megatron/core/__init__.py"
  touch "$SRC/MindSpeed/docker/file" "$SRC/wheels/torch.whl"
  ln -s MindSpeed/docker "$SRC/MindSpeed-MM/link"
}

@test "a release and a chip settle every version" {
  run -0 --separate-stderr build_sh --release 26.1.0 --chip a3 --dry-run
  [[ ${#lines[@]} -eq 1 && -z $stderr ]]
  has --tag taskpack:26.1.0-a3-qwen2_5_vl
  has --build-arg BASE_IMAGE=ascendai/cann:9.1.0-a3-ubuntu22.04-py3.11
  has --build-arg TORCH_NPU_VERSION=2.7.1.post8
  has --build-arg MINDSPEED_MM_RELEASE=26.1.0
  has --build-arg MEGATRON_TAG=core_v0.12.1
  has --build-arg MINDSPEED_COMMIT=69f41000
  has --file docker/Dockerfile
}

@test "a model's profile settles release, chip and family" {
  run -0 --separate-stderr build_sh --model qwen2vl-72b --dry-run
  has --tag taskpack:26.0.0-a3-qwen2_vl
  run -0 --separate-stderr build_sh --model "$MODEL" --release 2.3.0 --dry-run
  has --tag taskpack:2.3.0-910b-qwen2_5_vl
  has --build-arg MINDSPEED_COMMIT=93c45456
}

@test "release, chip and family that do not exist are refused" {
  run -2 --separate-stderr build_sh --release 26.1 --chip a3
  has_error "release '26.1' of MindSpeed-MM is not known" "26.1.0"
  run -2 --separate-stderr build_sh --release 26.1.0 --chip 910c
  has_error "chip '910c' has no image" "910b"
  run -2 --separate-stderr build_sh --release 26.1.0 --chip a3 --family qwen2_vl
  has_error "release 26.1.0 has no example of the family 'qwen2_vl'" "26.0.0"
  run -2 --separate-stderr build_sh --release 26.1.0
  has_error "the image has no chip" "--chip"
  run -2 --separate-stderr build_sh --model nothing
  has_error "no task is called 'nothing'"
  [[ ! -e $CALLS/docker ]]
}

@test "--base, --tag and --build-arg win, and a name counts once" {
  run -0 --separate-stderr build_sh --release 26.1.0 --chip a3 --base mirror:5000/cann:9.1.0-a3 --tag mine:1 \
    --build-arg MEGATRON_TAG=core_v0.12.2 --build-arg DECORD_VERSION=0.6.1 --dry-run
  has --tag mine:1
  has --build-arg BASE_IMAGE=mirror:5000/cann:9.1.0-a3
  has --build-arg MEGATRON_TAG=core_v0.12.2
  has --build-arg DECORD_VERSION=0.6.1
  [[ $(grep -o 'BASE_IMAGE=' <<<"$output" | wc -l) -eq 1 && $(grep -o MEGATRON_TAG= <<<"$output" | wc -l) -eq 1 ]]
}

@test "names without a version and latest are refused" {
  for name in cann cann:latest mirror:5000/cann; do
    run -2 --separate-stderr build_sh --release 26.1.0 --chip a3 --base "$name" --dry-run
    has_error "the image name '$name' does not say a version" "--base"
  done
  run -2 --separate-stderr build_sh --release 26.1.0 --chip a3 --tag taskpack:latest --dry-run
  has_error "the image name 'taskpack:latest' does not say a version" "--tag"
  [[ -z $output ]]
}

@test "pip's index is handed on, and one with a password is refused" {
  PIP_NO_INDEX=1 PIP_INDEX_URL=https://index.example/simple run -0 --separate-stderr build_sh --release 26.1.0 --chip a3 --dry-run
  has --build-arg PIP_INDEX_URL=https://index.example/simple
  has --build-arg PIP_NO_INDEX=1
  PIP_EXTRA_INDEX_URL=https://me:secret@index.example/simple \
    run -2 --separate-stderr build_sh --release 26.1.0 --chip a3 --dry-run
  has_error "PIP_EXTRA_INDEX_URL holds a user name or password" "without credentials"
  [[ $stderr != *secret* && -z $output ]]
  run -2 --separate-stderr build_sh --release 26.1.0 --chip a3 --build-arg MEGATRON_URL=https://t@host/x --dry-run
  has_error "MEGATRON_URL holds a user name or password"
  run -2 --separate-stderr build_sh --release 26.1.0 --chip a3 --build-arg NOTHING --dry-run
  has_error "'NOTHING' is no argument of a build"
}

@test "the context holds the pack and nothing of its environment" {
  run -0 --separate-stderr build_sh --release 26.1.0 --chip a3
  grep -Fxq docker/Dockerfile "$CALLS/context"
  grep -Fxq tools/taskpack/errors.py "$CALLS/context"
  grep -Fxq "tasks/$MODEL/profile.yaml" "$CALLS/context"
  lists_none '^\.|__pycache__|egg-info|^tests/' "$CALLS/context"
  [[ $stderr == *"built taskpack:26.1.0-a3-qwen2_5_vl" ]]
}

@test "local sources stand below docker/sources, and only they are renamed" {
  with_sources
  run -0 --separate-stderr build_sh --release 26.1.0 --chip a3 --src "$SRC"
  for name in MindSpeed-MM/pretrain_vlm.py Megatron-LM/megatron/core/__init__.py MindSpeed/docker/file wheels/torch.whl; do
    grep -Fxq "docker/sources/$name" "$CALLS/context"
  done
  lists_none '^(MindSpeed|Megatron|wheels)' "$CALLS/context"
  grep -Fxq docker/Dockerfile "$CALLS/context"
  stub docker 'mkdir "$CALLS/tree" && tar --extract --directory "$CALLS/tree"'
  run -0 --separate-stderr build_sh --release 26.1.0 --chip a3 --src "$SRC"
  [[ $(readlink "$CALLS/tree/docker/sources/MindSpeed-MM/link") == MindSpeed/docker ]]
}

@test "the dry run's line is the build" {
  with_sources
  run -0 --separate-stderr build_sh --release 26.1.0 --chip a3 --src "$SRC" --dry-run
  [[ ! -e $CALLS/docker ]]
  eval "$output"
  grep -Fxq docker/sources/MindSpeed-MM/pretrain_vlm.py "$CALLS/context"
  [[ $(tail -n 1 "$CALLS/docker") == - ]]
}

@test "sources that are missing or something else are refused" {
  run -2 --separate-stderr build_sh --release 26.1.0 --chip a3 --src nowhere
  has_error "the folder 'nowhere' does not exist"
  run -2 --separate-stderr build_sh --release 26.1.0 --chip a3 --src "$SRC"
  has_error "'$SRC' holds no source" "MindSpeed-MM"
  mkdir "$SRC/MindSpeed-MM" "$SRC/Megatron-LM"
  run -2 --separate-stderr build_sh --release 26.1.0 --chip a3 --src "$SRC"
  has_error "'$SRC/MindSpeed-MM' is no checkout of MindSpeed-MM" "pretrain_vlm.py"
  has_error "'$SRC/Megatron-LM' is no checkout of Megatron-LM"
}

@test "a build that fails does not say that it built" {
  stub docker 'cat >/dev/null; exit 7'
  run -7 --separate-stderr build_sh --release 26.1.0 --chip a3
  [[ $stderr != *built* ]]
}

@test "a host without docker, and a Python that cannot read the releases, are told so" {
  DOCKER=no-such-engine run -5 --separate-stderr build_sh --release 26.1.0 --chip a3
  has_error "'no-such-engine' is not on PATH"
  stub bare 'exit 1'
  PYTHON=bare run -5 --separate-stderr build_sh --release 26.1.0 --chip a3
  has_error "'bare' lacks pydantic or PyYAML" "make setup"
}

@test "an unknown word and an option without its value are refused" {
  run -2 --separate-stderr build_sh 26.1.0
  has_error "'26.1.0' is no option"
  run -2 --separate-stderr build_sh --release
  has_error "--release lacks its value"
  run -0 build_sh --help
  [[ $output == *'--src DIR'* ]]
}

# a_repository <folder> <file>: one commit with a tag, and one behind it
a_repository() {
  mkdir -p "$1/$(dirname "$2")"
  touch "$1/$2"
  (
    cd "$1" || exit
    export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    git init -q && git add . && git commit -qm one && git tag wanted
    touch later && git add . && git commit -qm two
  )
}

# fetch: what the build does for sources
fetch() {
  local name
  export MINDSPEED_MM_COMMIT=wanted MEGATRON_TAG=wanted MINDSPEED_COMMIT=wanted TRANSFORMERS_VERSION=4.57.0
  export MINDSPEED_MM_URL=$PWD/hub/MindSpeed-MM MEGATRON_URL=$PWD/hub/Megatron-LM
  export MINDSPEED_URL=$PWD/hub/MindSpeed TRANSFORMERS_URL=$PWD/hub/transformers
  for name in MindSpeed-MM/pretrain_vlm.py Megatron-LM/megatron/core.py MindSpeed/mindspeed.py transformers/setup.py; do
    if [[ ! -d hub/${name%%/*} ]]; then
      a_repository "hub/${name%%/*}" "${name#*/}"
    fi
  done
  bash "$REPO/docker/fetch_sources.sh" "$PWD/given" "$PWD/out"
}

@test "sources are cloned at their revisions, and Megatron's package lies in MindSpeed-MM" {
  run -0 fetch
  [[ -f out/MindSpeed-MM/pretrain_vlm.py && -f out/MindSpeed-MM/megatron/core.py && -f out/MindSpeed/mindspeed.py ]]
  [[ ! -e out/MindSpeed-MM/later && ! -e out/MindSpeed/later && ! -e out/transformers && ! -e out/Megatron-LM ]]
  [[ -z $(find out -name .git) && $(stat -c %A out/MindSpeed-MM) == drwxrw* ]]
}

@test "transformers is cloned where the release takes a commit of it" {
  fetch
  rm -r out
  TRANSFORMERS_VERSION=wanted run -0 bash "$REPO/docker/fetch_sources.sh" "$PWD/given" "$PWD/out"
  [[ -f out/transformers/setup.py && ! -e out/transformers/later ]]
}

@test "a given checkout is taken at the release's revision, and refused at another" {
  a_repository given/MindSpeed mindspeed.py
  run -5 --separate-stderr fetch
  has_error "MindSpeed is at " "git checkout wanted"
  git -C given/MindSpeed checkout -q wanted
  touch given/MindSpeed/mine
  rm -r out
  run -0 --separate-stderr fetch
  [[ -f out/MindSpeed/mine ]]
}

@test "a given folder that cannot say its revision is taken with a note" {
  mkdir -p given/MindSpeed
  touch given/MindSpeed/mine
  run -0 --separate-stderr fetch
  [[ -f out/MindSpeed/mine && $stderr == *"given/MindSpeed holds no .git"*wanted* ]]
}

@test "a container starts with the environment of CANN and ATB and the driver's libraries" {
  local prefix=$BATS_TEST_TMPDIR/ascend
  mkdir -p "$prefix/cann" "$prefix/nnal/atb" "$prefix/driver/lib64/driver"
  echo 'export CANN=$NOT_SET$1.cann; false' >"$prefix/cann/set_env.sh"
  echo 'export ATB=atb' >"$prefix/nnal/atb/set_env.sh"
  ASCEND_PREFIX=$prefix LD_LIBRARY_PATH=/opt/lib run -3 --separate-stderr bash "$REPO/docker/entrypoint.sh" \
    bash -c 'echo "$CANN $ATB $LD_LIBRARY_PATH $*"; exit 3' _ 'a  b'
  [[ $output == ".cann atb /opt/lib:$prefix/driver/lib64:$prefix/driver/lib64/driver a  b" ]]
}
