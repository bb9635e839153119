# shellcheck shell=bash
# Which image: its name and the arguments of its build, from releases.yaml and the profiles.

# find_python: sets python to one that has what reading them takes
find_python() {
  python=${PYTHON:-$REPO/.venv/bin/python}
  if [[ ! -x $python && -z ${PYTHON:-} ]]; then
    python=python3
  fi
  if ! "$python" -c 'import pydantic, yaml' 2>/dev/null; then
    die 5 "'$python' lacks pydantic or PyYAML" "this host" \
      "versions and names of images are read from releases.yaml and the profiles" \
      "run 'make setup', set PYTHON to a Python 3.10 or later that has both, or give run.sh --image NAME"
  fi
}

# describe_image <model> <release> <chip> <family>: fills image_facts with NAME=value, IMAGE first;
# words may be empty
# shellcheck disable=SC2034 # the scripts read image_facts
describe_image() {
  local python lines
  find_python
  lines=$(cd -- "$REPO" && PYTHONPATH=tools "$python" -m taskpack.profile.image "$@") || exit
  mapfile -t image_facts <<<"$lines"
}

# check_image_name <name> <where>: a name without a version, or `latest`, changes its meaning
check_image_name() {
  local last=${1##*/}
  if [[ $last != *[:@]?* || $last == *:latest ]]; then
    problem 2 "the image name '$1' does not say a version" "$2" \
      "the same name must mean the same image on every node" "write NAME:TAG, with a tag that is not latest"
  fi
}

# check_docker: sets nothing, reports a host without a container engine
check_docker() {
  if ! type -P "$DOCKER" >/dev/null; then
    problem 5 "'$DOCKER' is not on PATH" "PATH=$PATH" "it builds and runs the images" \
      "install docker, or set DOCKER to another engine with the same options"
  fi
}

# need_value <option> <number of words that follow>
need_value() {
  if (($2 == 0)); then
    die 2 "$1 lacks its value" "command line" "the next word is its value" "see --help"
  fi
}
