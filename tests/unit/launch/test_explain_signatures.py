"""Known failures: each is found by the text that it leaves, among the lines of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from taskpack.launch.explain import explain
from taskpack.launch.log_scan import SIGNATURES
from taskpack.launch.signature import STRENGTH

BEFORE = (
    "> building model\n"
    " [2026-08-01 10:00:00] iteration        1/ 100 | elapsed time per iteration (ms): 900.0 |\n"
)

# text as it stands in logs, what it is, and a word of the advice
CASES = [
    (
        "EI0006: 2026-08-01-10:00:05.1 Getting socket times out. Reason: Remote Rank did not "
        "send the data in time.",
        "EI0006 connection timeout",
        "HCCL_CONNECT_TIMEOUT",
    ),
    (
        "[ERROR] HCCL: [Wait][Recv]topo exchange agent get socket timeout! timeout[1200]",
        "EI0006 connection timeout",
        "ended first",
    ),
    (
        "EI0002: The wait execution of the Notify register times out.",
        "EI0002 rank stopped answering",
        "HCCL_EXEC_TIMEOUT",
    ),
    ("[ERROR] notify wait timeout, remote rank 3", "EI0002 rank stopped answering", "ended first"),
    (
        "EI0003: In [HcclAllReduce], value [1] for parameter [count] is invalid.",
        "EI0003 communication argument",
        "group sizes",
    ),
    (
        "EI0004: The ranktable is invalid, Reason: [rank size].",
        "EI0004 rank table",
        "RANK_TABLE_FILE",
    ),
    (
        "EI0005: The arguments for collective communication are inconsistent between ranks: tag",
        "EI0005 ranks disagree",
        "data",
    ),
    (
        "EJ0001: 2026-08-01-10:00:05.1 Failed to initialize the HCCP process. Reason: Maybe the "
        "last training process is running.",
        "EJ0001 NPU in use",
        "npu-smi info",
    ),
    (
        "[ERROR] 2026-08-01-10:00:05 (PID:9, RankID:3) ERR02200 DIST call hccl api failed.",
        "ERR02200 HCCL call",
        "EI or EJ",
    ),
    (
        "[ERROR] 2026-08-01-10:00:05 (PID:9, Device:3, RankID:3) ERR00100 PTA call acl api failed",
        "ERR00100 ACL call",
        "code of CANN",
    ),
    (
        "[Error]: Invalid device ID. aclInit, error code is 107001",
        "invalid device",
        "NPUS_PER_NODE",
    ),
    ("rtSetDevice failed, retCode=107001", "invalid device", "NPUS_PER_NODE"),
    (
        "EL0003: The argument is invalid. Reason: rtGetDevMsg execution failed",
        "EL driver or memory",
        "dmesg",
    ),
    ("EL0004: Failed to allocate memory.", "EL driver or memory", "dmesg"),
    (
        "[ERROR] 2026-08-01-10:00:05 (PID:9, RankID:0) ERR99999 UNKNOWN application exception",
        "ERR99999 any error",
        "traceback",
    ),
    (
        "[Find][LocalHostIP]ip [10.0.0.9] is not found in the nic list",
        "wrong HCCL_IF_IP",
        "each node",
    ),
    ("[Get][HostIp]get host ip fail by socket Ifname[eth7]", "wrong interface name", "ip -br addr"),
    ("RuntimeError: [gloo] Unable to find address for: eth7", "wrong interface name", "GLOO"),
    (
        "socket bind fail, ip[10.0.0.1] port[60000] have been bound already",
        "port in use",
        "HCCL_IF_BASE_PORT",
    ),
    ("OSError: [Errno 98] Address already in use", "port in use", "MASTER_PORT"),
    ("ra socket listen start fail, ret[-98]", "port in use", "MASTER_PORT"),
    ("tlsStatus are inconsistent, local[1] remote[0]", "TLS switch differs", "hccn_tool"),
    ("rdma init fail, ret[128]", "NPU network port", "hccn_tool"),
    ("cqe error status[12], qpn[8]", "NPU network port", "PFC"),
    (
        "connected p2p timeout, timeout:120 s. local logicDevid:0",
        "peer NPU of the node",
        "ended first",
    ),
    (
        "ImportError: libhccl.so: cannot open shared object file: No such file or directory",
        "CANN environment",
        "set_env.sh",
    ),
    (
        "ImportError: libascend_hal.so: cannot open shared object file: No such file or directory",
        "driver libraries",
        "driver/lib64",
    ),
    ("dcmi module initialize failed. ret is -8005", "driver not reached", "davinci_manager"),
    ("finetune.sh: line 3: npu-smi: command not found", "npu-smi missing", "mount"),
    (
        "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB in all)",
        "NPU out of memory",
        "train.recompute",
    ),
    (
        "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 1.10 GiB",
        "NPU out of memory",
        "taskpack plan",
    ),
    (
        "The error from device(0), aicore exception, core id is 3, error code is 507015",
        "AI Core fault",
        "ASCEND_LAUNCH_BLOCKING",
    ),
    (
        "rtStreamSynchronize failed: reason=[aicpu exception]",
        "AI CPU fault",
        "ASCEND_LAUNCH_BLOCKING",
    ),
    ("HBM MULTI-BIT ECC error on device 3", "memory fault of the NPU", "ecc"),
    (
        "[Thu Aug  1 10:00:05 2026] Out of memory: Killed process 4242 (python) total-vm:9kB",
        "host out of memory",
        "data.loader_workers",
    ),
    ("OSError: [Errno 28] No space left on device", "disk full", "SAVE_PATH"),
    (
        "ERROR: Unexpected bus error in worker. This might be caused by insufficient shared "
        "memory (shm).",
        "shared memory full",
        "--shm-size",
    ),
    (
        "RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed.",
        "loader worker died",
        "/dev/shm",
    ),
    ("OSError: [Errno 24] Too many open files", "too many open files", "ulimit"),
    ("socket.gaierror: [Errno -2] Name or service not known", "name not resolved", "/etc/hosts"),
    (
        "torch.distributed.DistStoreError: Timed out after 901 s waiting for clients. 1/2 clients "
        "joined; timed out waiting for clients",
        "nodes did not meet",
        "doctor --hosts",
    ),
    (
        "RuntimeError: Gloo connectFullMesh failed with [gloo] connect timeout",
        "gloo did not connect",
        "GLOO_SOCKET_IFNAME",
    ),
    (
        "[E801] [PG 0] Watchdog caught collective operation timeout: WorkHCCL(OpType=ALLREDUCE)",
        "collective timeout",
        "timeout_minutes",
    ),
    (
        "RuntimeError: [gloo] Connection closed by peer [10.0.0.2]:5000",
        "connection lost",
        "ended first",
    ),
    ("EZ9999: Inner Error!", "CANN inner error", "plog"),
    (
        "ValueError: Image features and image tokens do not match: tokens: 64, features 256",
        "pictures and marks differ",
        "data check",
    ),
    (
        "PIL.UnidentifiedImageError: cannot identify image file '/data/a.png'",
        "picture not readable",
        "data check",
    ),
    (
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "JSON not readable",
        "data check",
    ),
    ("ZeroDivisionError: integer division or modulo by zero", "too few rows", "batch.micro"),
    ("    assert learning_rate is not None", "stage without a trainable weight", "taskpack plan"),
    (
        "RuntimeError: Error(s) in loading state_dict for VLMModel:",
        "weights do not fit",
        "--mm DIR",
    ),
    (">> '--exit-on-missing-checkpoint' set ... exiting. <<", "no checkpoint", "LOAD_PATH"),
    (
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded",
        "refused pickle",
        "torch",
    ),
    ("AssertionError: Rank 3: found NaN in local grad norm for bucket #0", "NaN", "train.lr"),
    (
        "ModuleNotFoundError: No module named 'mindspeed'",
        "package missing or of another version",
        "doctor --task",
    ),
    ("pretrain_vlm.py: error: unrecognized arguments: --log-tps", "flag refused", "--release"),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: './data/rows.json'",
        "file missing",
        "checkout",
    ),
    ("PermissionError: [Errno 13] Permission denied: 'save_dir'", "permission", "owner"),
    (
        "finetune.sh: line 8: 4242 Segmentation fault (core dumped) torchrun",
        "segmentation fault",
        "doctor --task",
    ),
    ("Bus error (core dumped)", "bus error", "--shm-size"),
    (
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15",
        "stopped from outside",
        "other nodes",
    ),
]


@pytest.mark.parametrize(("text", "name", "advice"), CASES, ids=[text[:40] for text, _, _ in CASES])
def test_a_known_failure_is_found_with_its_line(
    tmp_path: Path, text: str, name: str, advice: str
) -> None:
    log = tmp_path / "run.log"
    log.write_text(f"{BEFORE}[rank5]: {text}\n", encoding="utf-8")
    found = explain([log]).findings
    assert [finding.name for finding in found] == [name]
    first = found[0]
    assert (first.line, first.rank) == (3, 5)
    assert advice in first.fix


def test_every_signature_has_a_case() -> None:
    assert {name for _, name, _ in CASES} == {one.name for one in SIGNATURES}


def test_signatures_are_well_formed() -> None:
    names = [one.name for one in SIGNATURES]
    assert len(set(names)) == len(names)
    for one in SIGNATURES:
        assert one.kind in STRENGTH
        assert one.why and one.fix
        assert all(key == key.lower() and len(key) > 4 for key in one.keys)


@pytest.mark.parametrize(
    "line",
    [
        "        Solution: 1. Check whether the address already in use by another process.",
        "    --exit-on-missing-checkpoint ...................... True",
        "  ZeroDivisionError is caught by the sampler",
        "consumed samples:       107001 | consumed tokens: 507015",
        " iteration 207001/ 300000 | lm loss: 1.0E+00",
        "WARNING: could not import triton (ImportError), going on without",
        "[W socket.cpp:464] [c10d] The client socket has failed to connect to [localhost]:29501",
        "loading /data/EI0006_photo.png",
    ],
)
def test_a_line_that_only_mentions_a_failure_is_none(tmp_path: Path, line: str) -> None:
    log = tmp_path / "run.log"
    log.write_text(f"{BEFORE}{line}\n", encoding="utf-8")
    assert explain([log]).findings == ()
