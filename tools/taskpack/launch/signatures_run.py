"""Failures of the host, of torch, of the trainer and of the data."""

from __future__ import annotations

import re

from taskpack.launch.signature import Signature

_CHECK = "taskpack data check --task TASK names the rows"


def _raised(*names: str) -> re.Pattern[str]:
    """Match an exception where it ends a run, not where a message mentions it."""
    return re.compile(rf"^(?:[\w.]+\.)?(?:{'|'.join(names)})(?::|$)")


RUN_SIGNATURES = (
    Signature(
        "port in use",
        "cause",
        (
            "address already in use",
            "have been bound already",
            "ra socket listen start fail",
            "eaddrinuse",
        ),
        "another process listens on a port of this run",
        "end the earlier run, or set another MASTER_PORT (torchrun) or HCCL_IF_BASE_PORT (HCCL) on "
        "every node alike",
    ),
    Signature(
        "host out of memory",
        "cause",
        ("out of memory: killed process", "oom-kill:", "oomkilled", "oom_reaper"),
        "the kernel ended a process because memory ran out",
        "lower data.loader_workers and data.workers, raise the container's limit, or use fewer "
        "processes per node",
    ),
    Signature(
        "disk full",
        "cause",
        ("no space left on device", "disk quota exceeded"),
        "a file could not be written",
        "make room where the path points (df -h and df -i); set SAVE_PATH to a larger disk; "
        "/dev/shm counts as well",
    ),
    Signature(
        "shared memory full",
        "cause",
        (
            "insufficient shared memory",
            "workers are out of shared memory",
            "unable to write to file </torch_",
            "unable to open shared memory object",
        ),
        "loader workers hand batches over in /dev/shm, and it is full",
        "start the container with --ipc=host or a larger --shm-size; lower data.loader_workers",
    ),
    Signature(
        "loader worker died",
        "symptom",
        ("dataloader worker (pid",),
        "a process that loads rows was killed or crashed",
        "its own traceback stands above; without one it was killed for memory, or /dev/shm is full",
        re.compile(r"killed by signal|exited unexpectedly"),
    ),
    Signature(
        "too many open files",
        "cause",
        ("too many open files",),
        "the limit of files of a process is reached",
        "ulimit -n 32768 before the start, or --ulimit nofile=32768 for the container",
    ),
    Signature(
        "name not resolved",
        "cause",
        ("name or service not known", "temporary failure in name resolution", "gaierror"),
        "a node's name has no address here; names of pods may appear late",
        "write addresses into the hostfile or /etc/hosts; wait and start again on a cluster",
    ),
    Signature(
        "nodes did not meet",
        "symptom",
        (
            "rendezvoustimeouterror",
            "rendezvousconnectionerror",
            "the client socket has timed out",
            "timed out waiting for clients",
            "waiting for clients. only",
        ),
        "not all nodes reached MASTER_ADDR and MASTER_PORT in time",
        "start the same command on every node; check NNODES, NODE_RANK, the address and the "
        "firewall: taskpack doctor --hosts FIRST,SECOND",
    ),
    Signature(
        "gloo did not connect",
        "symptom",
        ("connectfullmesh failed", "gloo connect"),
        "processes could not connect over the host's network",
        "set GLOO_SOCKET_IFNAME to the interface that leads to the master",
        re.compile(r"fail|error|timeout|timed out"),
    ),
    Signature(
        "collective timeout",
        "symptom",
        ("collective operation timeout", "watchdog caught collective"),
        "a rank waited for others longer than the run allows",
        "find the rank that ended or fell behind first; raise platform.timeout_minutes if a save "
        "takes long",
    ),
    Signature(
        "connection lost",
        "symptom",
        ("connection reset by peer", "connection closed by peer", "connection refused"),
        "the process at the other end has gone",
        "find the rank that ended first",
    ),
    Signature(
        "pictures and marks differ",
        "cause",
        (
            "image features and image tokens do not match",
            "video features and video tokens do not match",
        ),
        "a sample's text was cut through a picture, or marks and pictures differ in number",
        f"{_CHECK}; raise train.seq_length or lower data.image_max_pixels",
    ),
    Signature(
        "picture not readable",
        "cause",
        ("cannot identify image file", "image file is truncated"),
        "a file that a row names is no picture, or is cut short",
        f"{_CHECK}; taskpack data convert --on-bad drop leaves them out",
    ),
    Signature(
        "JSON not readable",
        "cause",
        ("jsondecodeerror",),
        "a JSON file is damaged or empty: data, model.json or a config.json",
        f"the traceback names the file; {_CHECK}; taskpack render --check compares the task's",
        _raised("jsondecodeerror"),
    ),
    Signature(
        "too few rows",
        "cause",
        ("zerodivisionerror",),
        "in the sampler: fewer rows than one micro batch of every copy of the model takes",
        "give more rows or lower batch.micro: taskpack plan TASK --data FILE counts them",
        _raised("zerodivisionerror"),
    ),
    Signature(
        "stage without a trainable weight",
        "cause",
        ("learning_rate is not none",),
        "an optimizer without parameters has no learning rate to print",
        "taskpack plan TASK names such stages; the rendered launcher passes what they need",
    ),
    Signature(
        "weights do not fit",
        "cause",
        ("size mismatch for ", "in loading state_dict", "unexpected key(s) in state_dict"),
        "the weights are cut for another layout, or are of another model",
        "taskpack plan TASK --mm DIR compares them; convert or resplit with this profile",
    ),
    Signature(
        "no checkpoint",
        "cause",
        ("exit-on-missing-checkpoint' set", "could not find the metadata file"),
        "the folder to load from has no tracker file, or is another one than meant",
        "bash TASK/convert_hf_to_mm.sh, or correct LOAD_PATH",
    ),
    Signature(
        "refused pickle",
        "cause",
        ("weights only load failed",),
        "torch 2.6 and later load tensors only, and this file holds other objects",
        "use the torch of the release (taskpack doctor --task TASK), or convert the weights again",
    ),
    Signature(
        "NaN",
        "cause",
        ("found nan in", "found inf in"),
        "a loss or gradient is not a number any more",
        "lower train.lr, look at the rows of that step, start from the last good checkpoint",
    ),
    Signature(
        "package missing or of another version",
        "cause",
        ("modulenotfounderror", "importerror"),
        "a package is not in this environment, or its version lacks that name",
        "taskpack doctor --task TASK compares the versions with the release",
        _raised("modulenotfounderror", "importerror"),
    ),
    Signature(
        "flag refused",
        "cause",
        ("unrecognized arguments", "the following arguments are required", "invalid choice:"),
        "the trainer does not know a flag or its value",
        "render the task for the release that is checked out: taskpack render TASK --release R",
        re.compile(r"error: "),
    ),
    Signature(
        "file missing",
        "cause",
        ("filenotfounderror",),
        "a file that the run reads is not on this node",
        "bring it there, or correct the path; relative paths start at the checkout",
        _raised("filenotfounderror"),
    ),
    Signature(
        "permission",
        "cause",
        ("permissionerror",),
        "this user may not read or write a path",
        "correct owner and mode of the path; in a container, the user's id and group",
        _raised("permissionerror"),
    ),
    Signature(
        "segmentation fault",
        "cause",
        ("segmentation fault",),
        "native code crashed; mostly versions of torch, torch_npu and CANN that do not fit",
        "taskpack doctor --task TASK compares them; PYTHONFAULTHANDLER=1 shows where",
    ),
    Signature(
        "bus error",
        "cause",
        ("bus error",),
        "memory behind a file went away: mostly /dev/shm is full, or a file was cut while mapped",
        "start the container with --ipc=host or a larger --shm-size",
        re.compile(r"bus error(?: \(core dumped\))?\W*$|fatal python error: bus error|sigbus"),
    ),
    Signature(
        "stopped from outside",
        "wrapper",
        ("got signal: 15", "got signal: 2", "signals.sigterm death signal"),
        "somebody ended the run: the platform, a user, or the launcher of another node",
        "look at the other nodes' logs and the platform's events",
    ),
)
