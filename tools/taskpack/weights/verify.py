"""Prove that two weights folders hold the same model, or that one is as it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskpack.errors import CheckFailed, CheckpointError, ProfileError, shorten
from taskpack.weights.account import ACCOUNT_FILE, shard_account
from taskpack.weights.adapter import ADAPTER_FILE
from taskpack.weights.copy_engine import worker_count
from taskpack.weights.folders import TRACKER_FILE, is_hf
from taskpack.weights.hf_config import HfConfig, read_hf_config
from taskpack.weights.hf_folder import hf_source
from taskpack.weights.layout import read_layout
from taskpack.weights.mm_checkpoint import mm_source, model_of
from taskpack.weights.mm_folder import read_mm_folder
from taskpack.weights.out_dir import digest_range
from taskpack.weights.plan import Address, Plan, Replica, covers_of, make_plan
from taskpack.weights.pt_read import read_rank_file
from taskpack.weights.replicas import differing
from taskpack.weights.run import Side
from taskpack.weights.safetensors_file import read_index, read_safetensors
from taskpack.weights.sides import rank_files
from taskpack.weights.tensors import TensorInfo, in_slices


def verify_equal(
    a: Path, b: Path, *, hf_ref: Path | None = None, iteration: str = "latest", threads: int = 0
) -> dict[str, Any]:
    """Compare every row of two folders of any kind and layout, byte for byte.

    Returns:
        The numbers of tensors and bytes of `b` that were compared.

    Raises:
        CheckFailed: Some rows differ.
        CheckpointError: A folder is incomplete, or they hold different models.
    """
    model = model_of_folders(hf_ref, a, b)
    sides = [_side(folder, model, iteration) for folder in (a, b)]
    refuse_other_dtypes(*sides, where=f"{a} and {b}")
    refuse_other_rows(*sides, a=a, b=b)
    plan = make_plan(sides[1].stored, sides[0].stored, sides[0].infos)
    pairs = [*plan.replicas, *(pair.replica for pair in pairs_of(plan, sides[1]))]
    different = differing(pairs, threads=worker_count(threads))
    if different:
        names = sorted({pair.tensor for pair in different})
        raise CheckFailed(
            f"{len(names)} tensors differ: {shorten(names)}",
            where=f"{different[0].first.path} and {different[0].second.path}",
            why="the two folders do not hold the same weights",
            fix="find which of them was changed; `taskpack verify DIR` checks one by its account",
        )
    return {
        "tensors": len(sides[1].infos),
        "bytes": sum(info.nbytes for info in sides[1].infos.values()),
        "equal": True,
    }


def model_of_folders(*folders: Path | None) -> HfConfig:
    """Tell the model from the first folder with a config.json, else from a layout file.

    Raises:
        CheckpointError: No folder tells it.
    """
    present = [folder for folder in folders if folder is not None]
    for folder in present:
        if is_hf(folder):
            return read_hf_config(folder)
    return model_of(read_mm_folder(present[0]))


def refuse_other_rows(one: Side, two: Side, *, a: Path, b: Path) -> None:
    """Refuse to call two folders equal of which one holds less of the model.

    Raises:
        CheckFailed: A weight is in one of them only.
    """
    tensors = [covers_of(side.stored).keys() for side in (one, two)]
    for folder, missing in ((b, tensors[0] - tensors[1]), (a, tensors[1] - tensors[0])):
        if missing:
            raise CheckFailed(
                f"{len(missing)} tensors are not in {folder}: {shorten(sorted(missing))}",
                where=f"{a} and {b}",
                why="two folders are equal when they hold the same weights, all of them",
                fix="compare whole models, or parts that were cut alike",
            )


def refuse_other_dtypes(a: Side, b: Side, *, where: str) -> None:
    """Refuse to compare weights of different element types.

    Raises:
        CheckFailed: They differ.
    """
    types = [sorted({info.dtype for info in side.infos.values()}) for side in (a, b)]
    if types[0] != types[1]:
        raise CheckFailed(
            f"the element types differ: {types[0]} and {types[1]}",
            where=where,
            why="rows are compared byte for byte",
            fix="convert one of them with --dtype first",
        )


def _side(folder: Path, model: HfConfig, iteration: str) -> Side:
    if is_hf(folder):
        return hf_source(folder, model)[0]
    return mm_source(read_mm_folder(folder, iteration=iteration), model, None)[0]


@dataclass(frozen=True, slots=True)
class Pair:
    """A run of rows on both sides, and the tensor of the second side that it belongs to."""

    address: Address
    replica: Replica


def pairs_of(plan: Plan, b: Side) -> Iterator[Pair]:
    """Yield every run of rows that a plan would copy to tensors that exist."""
    for job in plan.jobs:
        for target in job.targets:
            for move in target.moves:
                replica = Replica(
                    tensor=target.stored.name,
                    axis=target.axis,
                    turned=job.turned,
                    first=job.sources[move.source],
                    first_offset=move.source_offset,
                    second=b.infos[target.stored.address],
                    second_offset=move.target_offset,
                    length=move.length,
                )
                yield Pair(target.stored.address, replica)


def verify_account(folder: Path, *, threads: int = 0, partial: bool = False) -> dict[str, Any]:
    """Compare every tensor of a folder with the digest in its account.

    Args:
        folder: A folder that taskpack wrote.
        threads: Reading threads; 0 chooses.
        partial: Whether the folder holds the files of some ranks only.

    Raises:
        CheckFailed: A tensor has changed, or a file or its account is missing.
        ProfileError: The folder has no account.
        CheckpointError: A file is missing or damaged.
    """
    accounts = sorted(folder.rglob(f"*{ACCOUNT_FILE}"))
    if not accounts:
        raise ProfileError(
            f"{folder} has no account",
            where=str(folder),
            why="the digests that taskpack wrote beside each file are missing",
            fix="compare it with another folder: taskpack verify A B",
        )
    if not partial:
        _refuse_gaps(folder, accounts)
    work = [item for account in accounts for item in _accounted(account)]
    with ThreadPoolExecutor(worker_count(threads)) as pool:
        digests = list(pool.map(lambda item: _digest(item[1]), work))
    changed = [
        name
        for (name, _, expected), digest in zip(work, digests, strict=True)
        if f"xxh3:{digest}" != expected
    ]
    if changed:
        raise CheckFailed(
            f"{len(changed)} tensors have changed: {shorten(changed)}",
            where=str(folder),
            why="their bytes no longer have the digest in the account",
            fix="convert or copy the folder again",
        )
    return {
        "tensors": len(work),
        "bytes": sum(info.nbytes for _, info, _ in work),
        "files": len(accounts),
        "equal": True,
    }


def _refuse_gaps(folder: Path, accounts: Sequence[Path]) -> None:
    """Refuse a folder that lacks a file, an account or the tracker."""
    if is_hf(folder):
        index = read_index(folder)
        names = set((index or {}).values()) | {path.name for path in folder.glob("*.safetensors")}
        expected = {folder / shard_account(name) for name in names or {"model.safetensors"}}
        if (folder / ADAPTER_FILE).is_file():
            expected = {folder / ACCOUNT_FILE}
    else:
        record = read_layout(folder)
        ranks = rank_files(record.layout) if record is not None else []
        releases = {account.parent.parent for account in accounts} or {folder / "release"}
        expected = {root / rank / ACCOUNT_FILE for root in releases for rank in ranks}
        expected.add(folder / TRACKER_FILE)
    missing = sorted(str(path.relative_to(folder)) for path in expected if not path.is_file())
    if missing:
        raise CheckFailed(
            f"{len(missing)} files are missing: {shorten(missing)}",
            where=str(folder),
            why="every file that was written has an account beside it",
            fix="copy or convert the folder again; --partial accepts the files of some ranks",
        )


def _digest(info: TensorInfo) -> str:
    return digest_range(info.path, info.offset, info.nbytes)[0]


def _accounted(account: Path) -> Iterator[tuple[str, TensorInfo, str]]:
    try:
        record = json.loads(account.read_text(encoding="utf-8"))
        path = account.with_name(record["file"])
        content: Mapping[str, Mapping[str, list[Any]]] = record["content"]
        expected = {
            (key, name): (entry[0], tuple(entry[1]), entry[2])
            for key, tensors in content.items()
            for name, entry in tensors.items()
        }
    except (
        *(ValueError, KeyError, TypeError, AttributeError, IndexError),
        RecursionError,
    ) as error:
        raise CheckpointError(
            f"the account is damaged ({type(error).__name__})",
            where=str(account),
            why="the digests of the tensors are read from it",
            fix="convert or copy the folder again",
        ) from None
    found: dict[tuple[str, str], TensorInfo] = {}
    if path.suffix == ".safetensors":
        tensors = in_slices(read_safetensors(path), [name for _, name in expected])
        found = {("", name): info for name, info in tensors.items()}
    else:
        for key, state in read_rank_file(path).models.items():
            found |= {(key, name): info for name, info in state.items()}
    wrong = sorted(name for _, name in expected.keys() ^ found.keys())
    wrong += [
        name
        for (key, name), (dtype, shape, _) in expected.items()
        if (key, name) in found
        and (found[key, name].dtype, found[key, name].shape) != (dtype, shape)
    ]
    if wrong:
        raise CheckFailed(
            f"{len(wrong)} tensors are not those of the account: {shorten(wrong)}",
            where=str(path),
            why="the file was replaced after it was written",
            fix="convert or copy the folder again",
        )
    for address, (_, _, digest) in expected.items():
        yield f"{path.parent.name}/{address[1]}", found[address], digest
