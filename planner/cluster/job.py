"""A training job to place on a cluster: its mesh or groups, read from a file or made of a plan's layout."""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice, product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from planner.argument_ranges import NumberRange
from planner.errors import InputError, hint
from planner.files import read_json
from planner.instance.base_types import Count, Frozen, NonNegative, with_schema
from planner.instance.validation import validated
from planner.plan.plan import Plan
from planner.plan.plan_files import kind_of, of_kind

# A single line, since names are written into files and arguments.
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
HOST_GPUS = 8  # that one host starts at most: boards of NVL72 racks have 4, HGX nodes 8
EXCHANGES = ("tensor", "context", "expert", "data")  # kept within leaves; without bytes in this order
AXES = (*EXCHANGES, "pipeline")
AXIS_ALIASES = {"dp": "data", "pp": "pipeline", "tp": "tensor", "cp": "context", "ep": "expert"}
EXAMPLE = "such as pipeline=4,data=12"
MEMBER = ""


class GroupKind(Frozen):
    """A kind of a training job's groups: its all-reduce groups of one size."""

    name: Name = Field(description="Of the kind.")
    size: Count = Field(description="Nodes of one group.")
    count: Count = Field(description="Groups of this kind.")


@dataclass(frozen=True, slots=True)
class Slot:
    """One group of a training job: its kind, its name, and the ranks of its nodes."""

    kind: int
    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeshLevel:
    """A level of a job's mesh in blocks of one size; `axis`: the last held whole, MEMBER: the nodes of one member."""

    axis: str
    size: int  # nodes of a block
    groups: int  # groups of the axis in a block
    count: int  # blocks

    @property
    def what(self) -> str:
        """Name, for reports, the parts of a training job that a split block of this mesh level divides."""
        return "members" if self.axis == MEMBER else "groups" if self.axis == "data" else f"{self.axis} groups"


class Job(Frozen, json_schema_extra=with_schema):
    """A training job to place on a cluster: a mesh of equal groups, or groups of several sizes."""

    name: Name = Field(description="By which placements and launchers name it.")
    mesh: dict[Name, Count] | None = Field(
        None,
        description='Axis sizes in rank order, slowest first: {"pipeline": 8, "data": 16}; lines along data, tensor, '
        "context and expert exchange.",
    )
    nodes_per_member: Count = Field(1, description="Consecutive nodes of one member of the mesh, kept together first.")
    groups: tuple[GroupKind, ...] = Field((), description="In place of a mesh: groups in rank order, kind by kind.")
    gpus_per_node: Annotated[int, Field(ge=1, le=1_024)] | None = Field(None, description="GPUs (ranks) of a node.")
    segment_nodes: Count = Field(1, description="Consecutive nodes that must stay in one block (or leaf).")
    traffic_bytes_per_step: dict[Name, NonNegative] = Field(
        default_factory=dict,
        description="Bytes by axis or kind: a split group weighs its kind's bytes; of a mesh, the axis of tensor, "
        "context, expert and data with the most is kept within leaves first, without any in this order. Bytes of "
        "pipeline and of other axes are refused, as nothing uses them.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.mesh is None) == (not self.groups):
            raise ValueError("give either mesh or groups; remove one or add the other")
        if self.mesh is not None and not self.mesh:
            raise ValueError('mesh must have an axis; write one such as {"data": 16}')
        for axis in self.mesh or {}:
            if set(axis) & set("=,[]"):
                raise ValueError(f"mesh.{axis}: groups are named such as data[pipeline=0]; rename it without = , [ ]")
            near = difflib.get_close_matches(axis, AXES, 1)
            if near and axis not in AXES:
                raise ValueError(f"mesh.{axis}: did you mean {near[0]!r}? rename it, also where it is another axis")
        names = [group.name for group in self.groups]
        if len(set(names)) < len(names):
            raise ValueError(f"groups: names must differ (are {', '.join(names)}); join the kinds or rename one")
        known = list(self.mesh or names)
        for axis in self.traffic_bytes_per_step:
            if axis not in known:
                raise ValueError(f"traffic_bytes_per_step.{axis}: must be one of {', '.join(known)}; rename it")
            if self.mesh and axis not in EXCHANGES:
                used = f"only the bytes of {', '.join(EXCHANGES)} are"
                raise ValueError(f"traffic_bytes_per_step.{axis}: is not used; {used}; remove it")
        sizes = {f"groups[{group.name}].size": group.size for group in self.groups}
        for what, size in (sizes or {"nodes_per_member": self.nodes_per_member}).items():
            if size % self.segment_nodes:
                multiple = f"must be a multiple of segment_nodes {self.segment_nodes}"
                raise ValueError(f"{what}: {size} {multiple}; change either")
        return self

    @property
    def kinds(self) -> tuple[GroupKind, ...]:
        """The groups of a training job kind by kind; of a mesh one kind, the data lines."""
        if self.mesh is None:
            return self.groups
        data = self.mesh.get("data", 1)
        return (GroupKind(name="data", size=data * self.nodes_per_member, count=math.prod(self.mesh.values()) // data),)

    @property
    def nodes(self) -> int:
        """Number of nodes that a training job needs."""
        return sum(kind.size * kind.count for kind in self.kinds)

    @property
    def weights(self) -> tuple[int, ...]:
        """Weight of a training job's groups, by kind: bytes in millionths of the largest; 1 where none are given."""
        given = [self.traffic_bytes_per_step.get(kind.name, 0.0) for kind in self.kinds]
        if self.mesh is not None or not max(given):
            return (1,) * len(given)
        return tuple(round(1e6 * size / max(given)) for size in given)

    @property
    def levels(self) -> tuple[MeshLevel, ...]:
        """Levels of a training job's mesh from the inside; the data groups alone where nothing else exchanges."""
        if self.mesh is None:
            return ()
        mesh, size, bytes_of = self.mesh, self.nodes_per_member, self.traffic_bytes_per_step
        axes = sorted((axis for axis in EXCHANGES if mesh.get(axis, 1) > 1), key=lambda axis: -bytes_of.get(axis, 0.0))
        found = [MeshLevel(MEMBER, size, 1, self.nodes // size)] if size > 1 else []
        for axis in axes:
            groups, size = size // self.nodes_per_member, size * mesh[axis]
            found.append(MeshLevel(axis, size, groups, self.nodes // size))
        return tuple(found) or (MeshLevel("data", size, 1, self.nodes // size),)

    def numbering(self, level: int) -> tuple[str, ...]:
        """Return the axes of a job's mesh outside a level's blocks in number order, neighbours of the last close.

        Axes without groups come first, the pipeline last of them, else the slowest; then those of the levels above.
        """
        kept = [own.axis for own in self.levels]
        if not NumberRange(0, len(kept) - 1, whole=True).holds(level):
            due = f"from 0, the innermost, to {len(kept) - 1}" if kept else "left out, as the job has no mesh"
            raise InputError(f"level: must be {due} (is {level!r:.40})")
        axes = [axis for axis in self.mesh or {} if axis not in kept]
        return (*sorted(axes, key=lambda axis: (axis == "pipeline", -axes.index(axis))), *reversed(kept[level + 1 :]))

    def slots(self, level: int | None = None) -> Iterator[Slot]:
        """Yield a training job's groups in rank order: by kind, or a mesh's data groups by their other axes.

        With a `level` of its mesh, yield its blocks by their numbers; blocks of the levels inside follow each other.
        """
        if level is not None:
            outside = self.numbering(level)
            inside = [kept.axis for kept in reversed(self.levels[: level + 1])]
            yield from (Slot(0, name, ranks) for name, ranks in self._mesh_groups(inside, outside))
        elif self.mesh is not None:
            for label, ranks in self.lines("data"):
                yield Slot(0, f"data[{label}]" if label else "data", ranks)
        else:
            ranks_left = count()
            for k, kind in enumerate(self.groups):
                for i in range(kind.count):
                    yield Slot(k, f"{kind.name}[{i}]", tuple(islice(ranks_left, kind.size)))

    def lines(self, axis: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the groups along an axis of a job's mesh: places along the other axes by name, and ranks."""
        known = () if self.mesh is None else tuple({**self.mesh, **dict.fromkeys(AXES)})  # an axis left out is of one
        if axis not in known:
            raise InputError(f"axis: {axis!r:.40} is not in the mesh of job {self.name!r}; {hint(str(axis), known)}")
        return self._mesh_groups([axis], [other for other in self.mesh or {} if other != axis])

    def _mesh_groups(self, inside: Iterable[str], outside: Iterable[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield each place along a mesh's axes `outside` by name, with the ranks along those `inside`, by member."""
        mesh, before, step = self.mesh or {}, dict[str, range](), self.nodes_per_member
        for axis in reversed(mesh):
            before[axis] = range(0, step * mesh[axis], step)  # the ranks before each place along the axis
            step *= mesh[axis]
        inner, outer = [before[axis] for axis in inside if axis in mesh], list(outside)
        within = [sum(at) for at in product(*inner, range(self.nodes_per_member))]
        for at in product(*(before[axis] for axis in outer)):
            name = ",".join(f"{axis}={before[axis].index(ranks)}" for axis, ranks in zip(outer, at, strict=True))
            yield name, tuple(sum(at) + rank for rank in within)


AnyJob = Job | Plan | Mapping[str, Any] | str | Path


def read_job(given: AnyJob, gpus_per_node: int | None = None) -> Job:
    """Read a training job from its file, a dict or itself, checked; a plan's file is one, in nodes of these GPUs."""
    if isinstance(given, Job):
        return given
    where = str(given) if isinstance(given, (str, Path)) else "job"
    data = given if isinstance(given, (Mapping, Plan)) else read_json(Path(given))
    if not isinstance(data, (Mapping, Plan)):
        raise InputError(f"{where}: must be a job (is {type(data).__name__}); see `planner schema job`")
    if isinstance(data, Plan) or kind_of(data) == "plan":
        plan = data if isinstance(data, Plan) else validated(Plan, of_kind(data, where, "plan"), where)
        job = job_of_plan(plan, where, gpus_per_node)
        if gpus_per_node is None and (whole := job.gpus_per_node or 0) > HOST_GPUS:
            several = f"a rack has {whole} GPUs at work, more than one host starts"
            remedy = f"give --gpus-per-node: those of a host, or {whole} for a topology of racks"
            raise InputError(f"{where}: {several}; {remedy}")
        return job
    if gpus_per_node is not None:
        raise InputError(f"{where}: a job's file has its gpus_per_node; leave out --gpus-per-node, which is for plans")
    renamed = of_kind(data, where, "job")
    for key in ("mesh", "traffic_bytes_per_step"):
        axes = renamed.get(key)
        if isinstance(axes, Mapping):
            long = {AXIS_ALIASES.get(str(axis), axis): size for axis, size in axes.items()}
            if len(long) < len(axes):
                raise InputError(f"{where}: {key}: has an axis under two names ({', '.join(axes)}); keep one")
            renamed[key] = long
    return validated(Job, renamed, where)


def job_of_plan(plan: Plan, where: str = "plan", gpus_per_node: int | None = None) -> Job:
    """Return a plan's stages as a job on racks: at one site a mesh of stages and replicas, else groups by site.

    A rack is one node, or as many as have its GPUs at work together.
    """
    layout = plan.layout
    if layout is None:
        raise InputError(f"{where}: has no layout (status {plan.status}); give a plan with one")
    if layout.stages_per_rack < 1:
        shared = f"{layout.stages_per_rack} stages share a rack, at least 1 does"
        raise InputError(f"{where}: layout.stages_per_rack: {shared}; see what `planner check` says of it")
    sizes = {site: racks for site, racks in layout.racks_per_stage_by_site.items() if racks}
    gpus = min(plan.instance.hardware.rack.gpus, layout.stages_per_rack * layout.replicas_per_rack * layout.stage_gpus)
    each, rest = divmod(gpus, gpus_per_node or gpus)
    if rest or not each:
        whole = f"the {gpus} GPUs at work in a rack of {where}"
        raise InputError(f"--gpus-per-node: must divide {whole} (is {gpus_per_node})")
    node = {"name": plan.instance.name, "gpus_per_node": gpus // each, "segment_nodes": each}
    if len(sizes) == 1:
        mesh = {"pipeline": layout.rack_stages, "data": next(iter(sizes.values()))}
        return validated(Job, {**node, "mesh": mesh, "nodes_per_member": each}, where)
    kinds = [{"name": site, "size": size * each, "count": layout.rack_stages} for site, size in sorted(sizes.items())]
    return validated(Job, {**node, "groups": kinds}, where)


def mesh_job(
    name: str, mesh: str | None, nodes: int | None, *, gpus_per_node: int | None = None, option: str = "--mesh"
) -> Job:
    """Return the training job of a mesh, AXIS=SIZE,AXIS=SIZE in rank order, whose members share some nodes evenly.

    All nodes are one all-reduce group where there is no mesh; each member has one where no nodes are given. InputError:
    a part of the mesh is no axis and size, or given twice, or the nodes are not shared evenly.
    """
    if mesh is None and nodes is None:
        raise InputError(f"--job, --nodes, --mesh: give a job file, or nodes and a mesh {EXAMPLE}")
    axes: dict[str, int] = {} if mesh is not None or nodes is None else {"data": nodes}
    for part in [] if mesh is None else mesh.split(","):
        axis, equals, size = (word.strip() for word in part.partition("="))
        if not equals or not axis or not size.isascii() or not size.isdigit() or not 0 < int(size[:10]) <= 10**9:
            raise InputError(f"{option}: must be AXIS=SIZE,... {EXAMPLE} (is {part!r})")
        if axis in axes:
            raise InputError(f"{option}: axis {axis!r} is given twice; keep one")
        axes[axis] = int(size)
    members = math.prod(axes.values())
    each, rest = divmod(nodes or members, members)
    if rest or not each:
        raise InputError(f"--nodes: must be a multiple of the {members:,} members of {option} (is {nodes}); change one")
    return read_job({"name": name, "mesh": axes, "nodes_per_member": each, "gpus_per_node": gpus_per_node})
