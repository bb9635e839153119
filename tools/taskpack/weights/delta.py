"""The math of a merge: `W + scale * B @ A` on the rows of a chunk.

A and B are widened to fp64, in which the products of bf16 factors and their short sums are exact,
so a merged weight does not depend on how the model was cut; it is rounded to the base's type at
the end.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
import xxhash

from taskpack.errors import CheckpointError
from taskpack.weights.adapter import Adapted, AdapterSource, factors_of
from taskpack.weights.casts import Raw, is_finite, to_fp32
from taskpack.weights.copy_engine import Files, read_whole
from taskpack.weights.plan import Target, make_plan
from taskpack.weights.replicas import refuse_differences
from taskpack.weights.sides import hf_side
from taskpack.weights.wide import BLOCK, Fp64, Wide

_KEPT_BYTES = 128 << 20
"""Room for factors that are held; those of a layer of 72B with rank 64 take about 100 MB."""


class Delta:
    """Adds `scale * B @ A` to the rows of target weights.

    Entering it reads the whole adapter once and checks it; leaving it closes the files.

    Args:
        adapter: The adapter.
        chosen: The modules to merge.
        scales: What `B @ A` is multiplied with, by the name of the logical weight.
    """

    def __init__(
        self, adapter: AdapterSource, chosen: Sequence[Adapted], scales: Mapping[str, float]
    ) -> None:
        self.digest = ""
        """Digest of every factor, the same however they are laid out, once it is entered."""
        self._side = adapter.side
        self._scales = scales
        self._factors = {
            name: factors for item in chosen for name, factors in factors_of(item.base).items()
        }
        self._adapted = {
            name: factors
            for item in adapter.adapted
            for name, factors in factors_of(item.base).items()
        }
        everything = [entry for item in adapter.adapted for entry in (item.a, item.b)]
        logical = hf_side(everything, {}, (), single="adapter")
        plan = make_plan(logical, adapter.side.stored, adapter.side.infos)
        self._replicas = plan.replicas
        self._where = {t.stored.name: (job, t) for job in plan.jobs for t in job.targets}
        self._files = Files()
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, Fp64] = OrderedDict()
        self._wide = Wide()

    def __enter__(self) -> Delta:
        """Check the adapter.

        Raises:
            CheckpointError: Ranks disagree about a replicated factor, or a value is not finite.
        """
        try:
            self.digest = self._check()
        except BaseException:
            self._files.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._files.close()

    @property
    def identity(self) -> str:
        """What decides the result: the adapter's bytes, and each weight's scale."""
        return f"{self.digest} {sorted((name, self._scales[name]) for name in self._factors)}"

    def _check(self) -> str:
        refuse_differences(self._replicas, threads=1)
        digests = {}
        for name in self._where:
            values = self._load(name)
            if not np.isfinite(values).all():
                raise CheckpointError(
                    f"{name} holds NaN or infinite values",
                    where=self._side.where,
                    why="merging it would spoil every weight it touches",
                    fix="use an earlier iteration of the adapter (--iteration)",
                )
            digests[name] = xxhash.xxh3_128_digest(values.tobytes())
        # Per weight: where a fused layout holds one A for q, k and v, others hold it three times.
        whole = xxhash.xxh3_128()
        for name, factors in sorted(self._adapted.items()):
            whole.update(name.encode() + digests[factors.a] + digests[factors.b])
        return f"xxh3:{whole.hexdigest()}"

    def touches(self, target: Target) -> bool:
        """Tell whether a weight has rows with a delta."""
        return any(piece.tensor in self._factors for piece in target.stored.pieces)

    def exact(self, target: Target, first: int, rows: Raw, dtype: str) -> Fp64:
        """Give rows `[first, first + n)` of a target with their delta, before any rounding.

        Args:
            target: The weight.
            first: Number of the first row.
            rows: The rows as they are, `[n, width]`.
            dtype: Their element type.

        Returns:
            A view that this thread's next call overwrites.
        """
        total = self._wide.widen(rows, dtype)
        for piece in target.stored.pieces:
            if piece.tensor not in self._factors:
                continue
            a = self._get(self._factors[piece.tensor].a)
            b = self._get(self._factors[piece.tensor].b)
            if target.stored.axis == 1:
                columns = slice(piece.offset, piece.offset + piece.stop - piece.start)
                b, a = b[first : first + len(rows)], a[:, piece.start : piece.stop]
                part = total[:, columns]
            else:
                begin = max(first, piece.offset)
                end = min(first + len(rows), piece.offset + piece.stop - piece.start)
                if begin >= end:
                    continue
                at = piece.start + begin - piece.offset
                b, part = b[at : at + end - begin], total[begin - first : end - first]
            np.add(part, self._wide.multiply(b, a, self._scales[piece.tensor]), out=part)
        return total

    def change(self, target: Target, first: int, rows: Raw, dtype: str) -> Raw:
        """Put rows of a target as `exact` gives them, rounded once to their type, in their place.

        Raises:
            CheckpointError: A value does not fit the type.
        """
        if not self.touches(target):
            return rows
        step = max(1, BLOCK // rows.shape[1])
        for at in range(0, len(rows), step):
            block = rows[at : at + step]
            total = self.exact(target, first + at, block, dtype)
            self._wide.round(total, dtype, block)
            if not is_finite(block, dtype).all():
                raise CheckpointError(
                    f"merging makes {target.stored.name} infinite or NaN",
                    where=f"{target.stored.file}, row {first + at} or one of {len(block)} from it",
                    why=f"the result does not fit {dtype}, or the base holds such values already",
                    fix="check alpha and the adapter, or merge into a base converted with"
                    " --dtype fp32",
                )
        return rows

    def _get(self, name: str) -> Fp64:
        with self._lock:
            if name in self._cache:
                self._cache.move_to_end(name)
                return self._cache[name]
        values = self._load(name)
        with self._lock:
            self._cache[name] = values
            while sum(kept.nbytes for kept in self._cache.values()) > _KEPT_BYTES:
                self._cache.popitem(last=False)
        return values

    def _load(self, name: str) -> Fp64:
        job, target = self._where[name]
        result = np.empty(target.stored.shape, np.float64)
        for move in target.moves:
            info = job.sources[move.source]
            values = to_fp32(read_whole(self._files.fd(info.path), info), info.dtype)
            source = slice(move.source_offset, move.source_offset + move.length)
            place = slice(move.target_offset, move.target_offset + move.length)
            if target.axis == 1:
                result[:, place] = values[:, source]
            else:
                result[place] = values[source]
        return result
