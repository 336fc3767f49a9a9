"""Launches as probes would record them, without any training: plain rows to edit, written as real traces."""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ddp_repro.judge.ignored import rows_kept
from ddp_repro.trace.document import write_json
from ddp_repro.trace.identity import identity_digest
from ddp_repro.trace.launch import PARTED, Launch, LaunchRecord, Parting, RankExit, load_launch, write_launch_record
from ddp_repro.trace.layout import LaunchFolder
from ddp_repro.trace.reader import Trace
from ddp_repro.trace.schema import UNDRAWN, TraceMeta
from ddp_repro.trace.writer import TraceWriter

UNMOVED = "nothing moved this generator since observing began"
PARAMETERS = ("conv.weight", "conv.bias", "head.weight")


@dataclass(frozen=True, slots=True)
class Row:
    """One row; equal ``content`` gives equal digests."""

    step: int
    phase: str
    name: str
    spec: str
    content: str
    value: float | None = None


Rows = list[Row]
Ranks = dict[int, Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A small training to be written down: what a rank does in it is told by ``ranks``."""

    world_size: int = 2
    length: int = 24
    batch_size: int = 4
    epochs: int = 2
    max_steps: int | None = None
    workers: int = 0
    shuffle: bool = True
    drop_last: bool = False
    loader_drops: bool = False
    sampler: str = "DistributedSampler"
    epoch_of: Callable[[int, int], int] = lambda rank, number: number
    sampler_seed: Callable[[int], int] = lambda rank: 0
    noise: Callable[[int, int, int, int], str] = lambda rank, worker, number, batch: f"{rank}/{worker}/{number}/{batch}"
    dropout: Callable[[int], str] = lambda rank: f"dropout of {rank}"
    evaluate: bool = True
    evaluation_sampler: str = "sequential"


def ranks(script: Script) -> Ranks:
    """Return the rows of every rank."""
    return {rank: _rank(script, rank) for rank in range(script.world_size)}


def shard(script: Script, rank: int, number: int) -> list[int]:
    """Return a rank's samples in pass ``number``, as torch's DistributedSampler deals them."""
    order = np.arange(script.length)
    if script.shuffle:
        order = np.random.default_rng((script.sampler_seed(rank), script.epoch_of(rank, number))).permutation(order)
    return dealt(script, order, rank)


def dealt(script: Script, order: "np.ndarray[Any, Any]", rank: int) -> list[int]:
    """Return every ``world_size``-th sample of ``order``, padded from its front or cut."""
    world_size = script.world_size
    if script.drop_last:
        order = order[: len(order) // world_size * world_size]
    else:
        order = np.concatenate([order, order[: -len(order) % world_size]])
    return [int(index) for index in order[rank::world_size]]


def _rank(script: Script, rank: int) -> Rows:
    rows = [Row(-1, "init", name, "float32[8] replicated", f"init {name}") for name in PARAMETERS]
    rows.append(Row(-1, "init", "norm.mean", "float32[4] replicated", "init mean"))
    step = deliveries = 0
    for number in range(script.epochs):
        mine = shard(script, rank, number)
        batches = [mine[at : at + script.batch_size] for at in range(0, len(mine), script.batch_size)]
        if script.loader_drops:
            batches = [batch for batch in batches if len(batch) == script.batch_size]
        loader = f"{script.sampler}[0]"
        rows += facts(step, loader, _facts(script, rank, number))
        for position, batch in enumerate(batches):
            if step == script.max_steps:
                return rows
            rows += delivery(step, loader, batch, _states(script, rank, number, position))
            rows += _main_states(script, rank, step, deliveries)
            rows += _content(step, loader, rank, batch)
            rows += train_step(step, rank)
            step, deliveries = step + 1, deliveries + 1
        rows.append(Row(step, "data", f"{loader}.end", "int64[]", str(len(batches)), len(batches)))
        if script.evaluate:
            rows += _evaluation(script, rank, step, number)
    return rows


def facts(step: int, loader: str, told: dict[str, int]) -> Rows:
    """Return the rows at the beginning of a pass."""
    return [Row(step, "data", f"{loader}.{name}", "int64[]", str(value), value) for name, value in told.items()]


def _facts(script: Script, rank: int, number: int) -> dict[str, int]:
    return {
        "pass": number,
        "length": script.length,
        "shuffle": int(script.shuffle),
        "drop_last": int(script.drop_last or script.loader_drops),
        "epoch": script.epoch_of(rank, number),
        "num_workers": script.workers,
        "num_replicas": script.world_size,
        "sampler_rank": rank,
    }


def delivery(step: int, loader: str, batch: Sequence[int], states: Rows) -> Rows:
    """Return the rows of a delivered batch up to its workers' states."""
    return [Row(step, "data", f"{loader}.index", "int64[]", str(index), index) for index in batch] + [
        replace(state, step=step, name=f"{loader}.{state.name}") for state in states
    ]


def _states(script: Script, rank: int, number: int, position: int) -> Rows:
    if script.workers == 0:
        return []
    worker, turn = position % script.workers, position // script.workers
    before, after = (f"numpy {script.noise(rank, worker, number, turn + late)}" for late in (0, 1))
    return [
        Row(0, "rng", f"worker{worker}.numpy.before", "state", before),
        Row(0, "rng", f"worker{worker}.numpy.after", "state", after),
        Row(0, "rng", f"worker{worker}.python.before", "state", f"python {rank} {worker} {number}"),
        Row(0, "rng", f"worker{worker}.python.after", "state", f"python {rank} {worker} {number}"),
    ]


def _main_states(script: Script, rank: int, step: int, deliveries: int) -> Rows:
    return [
        Row(step, "rng", "python", "state", "python never drawn"),
        Row(step, "rng", "torch", "state", f"torch {script.dropout(rank)} {deliveries}"),
    ]


def _content(step: int, loader: str, rank: int, batch: Sequence[int]) -> Rows:
    told = f"samples {list(batch)}"
    return [
        Row(step, "data", f"{loader}.batch[0]", f"float32[{len(batch)},8]", f"images {rank} {told}"),
        Row(step, "data", f"{loader}.batch[1]", f"int64[{len(batch)}]", f"labels {told}"),
    ]


def train_step(step: int, rank: int) -> Rows:
    """Return what a clean DDP step leaves after its batch."""
    rows = [
        Row(step, "buffer", "norm.mean", "float32[4] replicated", f"mean {step}"),
        Row(step, "loss", "loss", "float32[]", f"loss {step} {rank}", 2.0 / (step + rank + 1)),
    ]
    rows += [Row(step, "grad_local", name, "float32[8]", f"local {step} {rank} {name}") for name in PARAMETERS[::-1]]
    rows += [Row(step, "grad_reduced", name, "float32[8] replicated", f"reduced {step} {name}") for name in PARAMETERS]
    rows.append(Row(step, "grad_reduced", "bucket_layout", "layout", f"layout {min(step, 1)}"))
    rows += [Row(step, "grad_step", name, "float32[8]", f"clipped {step} {name}") for name in PARAMETERS]
    rows += [Row(step, "param", name, "float32[8] replicated", f"param {step} {name}") for name in PARAMETERS]
    rows.append(Row(step, "buffer", "norm.mean", "float32[4]", f"mean after {step} on {rank}"))
    rows += [Row(step, "optimizer", f"{name}.exp_avg", "float32[8]", f"moment {step} {name}") for name in PARAMETERS]
    rows.append(Row(step, "optimizer", "group0.lr", "float64[]", f"rate {step}", 0.1 / (step + 1)))
    return rows


def _evaluation(script: Script, rank: int, step: int, number: int) -> Rows:
    """Return a pass without a loss: everything on every rank, or dealt out by a distributed sampler."""
    length = script.length - 1
    told = {"pass": 0, "length": length, "shuffle": 0, "drop_last": 0, "num_workers": 0}
    loader, mine = f"SequentialSampler[{number + 1}]", list(range(length))
    if script.evaluation_sampler == "distributed":
        loader = f"DistributedSampler[{number + 1}]"
        mine = dealt(script, np.arange(length), rank)
        told |= {"num_replicas": script.world_size, "sampler_rank": rank, "epoch": 0}
    rows = facts(step, loader, told)
    for at in range(0, len(mine), 4):
        rows += delivery(step, loader, mine[at : at + 4], []) + _content(step, loader, 0, mine[at : at + 4])
    rows.append(Row(step, "data", f"{loader}.end", "int64[]", "end", -(-len(mine) // 4)))
    return rows


def changed(rows: Rows, content: str = "changed", **where: Any) -> Rows:
    """Return the rows with the content of those at ``where`` (step, phase, name) changed; there must be one."""
    chosen = [at for at, row in enumerate(rows) if all(getattr(row, key) == value for key, value in where.items())]
    assert chosen, f"no row at {where}"
    return [replace(row, content=f"{content} {row.name}") if at in chosen else row for at, row in enumerate(rows)]


def from_step(rows: Rows, step: int, phase: str, content: str = "changed") -> Rows:
    """Return the rows with everything changed from ``phase`` of ``step`` on, but what comes from data."""
    order = ("loss", "grad_local", "grad_reduced", "grad_step", "param", "buffer", "optimizer")
    concerned = order[order.index(phase) :]

    def is_reached(row: Row) -> bool:
        if row.name in ("bucket_layout", "group0.lr"):
            return False
        now = row.step == step and row.phase in concerned and not (row.phase == "buffer" and "replicated" in row.spec)
        return now or (row.step > step and row.phase in order)

    return [replace(row, content=f"{content} {row.content}") if is_reached(row) else row for row in rows]


def identity(**changes: Any) -> dict[str, Any]:
    """Return an identity with some of its dotted fields (``__`` for a dot) set."""
    made: dict[str, Any] = {
        "schema": 1,
        "digest": "",
        "experiment": {"seed": 0, "threads": 1, "world_size": 2, "config": {"data": {"batch_size": 4}}},
        "software": {"torch": "2.13.0", "distributions": {"numpy": "2.4.6"}},
        "hardware": {"cpu": "a cpu", "cores": 8},
        "environment": {"variables": {"PYTHONHASHSEED": "0"}, "threads": 1},
        "provenance": {"host": "a"},
    }
    for name, value in changes.items():
        *groups, last = name.split("__")
        place = made
        for group in groups:
            place = place[group]
        place[last] = value
    made["digest"] = identity_digest(made)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How a launch is written: what ended it, what each rank is, and where its trace stops."""

    outcome: str = "finished"
    end: str | None = "finished"
    capture: str = "step"
    identities: dict[int, dict[str, Any]] = field(default_factory=dict)
    world_size: int | None = None
    finals: dict[int, dict[str, Any]] = field(default_factory=dict)
    end_told: bool = False


def write_launch(root: Path, index: int, written: Ranks, writing: Writing | None = None) -> Launch:
    """Write a launch to ``root/launch-<index>`` and load it again."""
    writing = writing or Writing()
    folder = LaunchFolder(root / f"launch-{index}")
    folder.path.mkdir(parents=True)
    world_size = writing.world_size or len(written)
    for rank, rows in written.items():
        told = {**writing.identities.get(rank, identity(experiment__world_size=world_size)), "rank": rank}
        write_json(folder.rank_identity(rank), told)
        meta = TraceMeta(
            identity=told["digest"], launch=index, rank=rank, world_size=world_size, capture=writing.capture
        )
        write_trace(folder.trace(rank), meta, rows, writing.end, end_told=writing.end_told)
        if rank in writing.finals:
            write_json(folder.final(rank), {"schema": 1, **writing.finals[rank]})
    record = LaunchRecord(
        launch=index,
        world_size=world_size,
        outcome=writing.outcome,
        reason="" if writing.outcome == "finished" else "rank 1 was killed by SIGKILL",
        ranks=[RankExit(rank=rank, exit_code=0, last_step=None) for rank in written],
        seconds=1.0,
    )
    write_launch_record(folder, record)
    return load_launch(folder)


def write_trace(path: Path, meta: TraceMeta, rows: Rows, end: str | None, *, end_told: bool = False) -> None:
    """Write a trace, flushed at each step; ``end=None`` leaves it without its closing row."""
    writer = TraceWriter(path, meta)
    before = None
    for row in rows:
        if row.step != before:
            writer.flush()
        before = row.step
        writer.append(row.step, row.phase, row.name, row.spec, digest(row), row.value)
    writer.flush()
    if end is not None:
        writer.close(end, end_told=end_told)


def digest(row: Row) -> bytes:
    """Return the digest of a row's content and of its type; what no probe looked at for `UNMOVED`."""
    if row.content == UNMOVED:
        return UNDRAWN
    return xxhash.xxh3_128_digest(f"{row.spec.removesuffix(' replicated')}:{row.content}".encode())


def float32(value: float) -> float:
    """Return ``value`` rounded to single precision."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def trace_of(rows: Rows, *, rank: int = 0, labels_first: Sequence[Row] = ()) -> Trace:
    """Return the trace of ``rows`` without a file; the labels of ``labels_first`` get the first codes."""
    columns: dict[str, Any] = {}
    for column in ("phase", "name", "spec"):
        codes: dict[str, int] = {}
        for row in [*labels_first, *rows]:
            codes.setdefault(getattr(row, column), len(codes))
        columns[column] = np.array([codes[getattr(row, column)] for row in rows], np.int32)
        columns[f"{column}s"] = list(codes)
    values = [row.value for row in rows]
    return Trace(
        meta=TraceMeta(identity="", launch=0, rank=rank, world_size=1, capture="step"),
        step=np.array([row.step for row in rows], np.int32),
        seq=np.arange(len(rows), dtype=np.int64),
        digest=np.frombuffer(b"".join(digest(row) for row in rows), np.uint64).reshape(-1, 2),
        value=np.array([np.nan if value is None else value for value in values], np.float64),
        valid=np.array([value is not None for value in values], np.bool_),
        end="finished",
        damage=None,
        **columns,
    )


def cut(launch: Launch, rows: Mapping[int, int], *, parting: Parting | None = None) -> Launch:
    """Return a launch as if it had been ended early: of each rank only so many rows are there."""
    assert launch.record is not None
    traces = {rank: rows_kept(trace, np.arange(len(trace)) < rows[rank]) for rank, trace in launch.traces.items()}
    traces = {rank: replace(trace, end=None, damage="the trace is cut") for rank, trace in traces.items()}
    record = replace(launch.record, outcome=PARTED, parting=parting)
    return replace(launch, traces=traces, record=record, finals={})


def launch_of(written: Ranks, *, index: int = 0) -> Launch:
    """Return a launch of ``written`` without files, finished and with identities."""
    record = LaunchRecord(launch=index, world_size=len(written), outcome="finished", reason="", ranks=[], seconds=1.0)
    return Launch(
        index=index,
        path=Path(f"launch-{index}"),
        record=record,
        traces={rank: trace_of(rows, rank=rank) for rank, rows in written.items()},
        identities={rank: identity(experiment__world_size=len(written)) for rank in written},
        problems=[],
    )
