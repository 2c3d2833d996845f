"""Rules of the placement: every stage has its racks, no rack two stages, and the counts are right."""

from collections import Counter
from collections.abc import Iterator

from planner.checks.compare import at_least, equal
from planner.physics import hostlist
from planner.physics.locality import domain_racks, locality, lower_bound_split
from planner.plan import Plan, SiteFabric, SitePlacement, Violation


def ranks_of(held: SitePlacement, stages: int) -> list[list[int]] | None:
    """Return the racks of every stage in rank order; None where the lists cannot be read."""
    ranks: list[list[int]] = [[] for _ in range(stages)]
    for a in held.assignment:
        if not 0 <= a.stage < stages:
            return None
        try:
            ranks[a.stage] += hostlist.parse(a.racks)
        except ValueError:
            return None
    return ranks


def check_placement(plan: Plan) -> Iterator[Violation]:
    """Check every site's assignment and the sums over sites."""
    held, layout, fabric = plan.placement, plan.layout, plan.fabric
    if held is None or layout is None or fabric is None:
        return
    wanted = sorted(s for s, d in layout.data_parallel_by_site.items() if d)
    yield from equal("placement_sites", sorted(s for s, p in held.sites.items() if p.assignment), wanted, "sites with an assignment")
    split = pieces = pods = bound = groups = 0
    for site in wanted:
        if site not in held.sites or site not in fabric.sites:
            continue
        f, racks = fabric.sites[site], fabric.sites[site].endpoint_links // max(1, rails(plan))
        yield from racks_once(site, held.sites[site])
        yield from in_domain(site, held.sites[site], f, racks)
        ranks = ranks_of(held.sites[site], layout.pipeline_parallel)
        if ranks is None:
            yield Violation(rule=f"assignment[{site}]", message="a list of racks or a stage cannot be read")
            continue
        size = layout.racks_per_stage_by_site.get(site, 0)
        for stage, hosts in enumerate(ranks):
            yield from equal(f"stage_racks[{site}.{stage}]", len(hosts), size, f"racks of stage {stage}")
        found = locality(ranks, leaf_domain_racks=max(1, f.leaf_domain_racks), domains_per_pod=max(1, f.leaf_domains_per_pod), wrap=False)
        groups += layout.pipeline_parallel
        split, pieces = split + found.groups_split, pieces + found.extra_pieces
        pods += found.groups_cross_pod if f.leaf_domains_per_pod else 0
        bound += lower_bound_split(domain_racks(racks, max(1, f.leaf_domain_racks)), layout.pipeline_parallel, max(1, size))
    yield from equal("groups", held.groups, groups, "groups")
    yield from equal("groups_split", held.groups_split, split, "split groups")
    yield from equal("groups_leaf_local", held.groups_leaf_local, groups - split, "leaf-local groups")
    yield from equal("extra_pieces", held.extra_pieces, pieces, "pieces beyond one a group")
    yield from equal("groups_cross_pod", held.groups_cross_pod, pods, "groups across pods")
    yield from equal("lower_bound_split", held.lower_bound_split, bound, "analytic bound on split groups")
    yield from at_least("lower_bound_split", held.groups_split, bound, "split groups against the bound")


def rails(plan: Plan) -> int:
    """GPUs of a rack."""
    rack = plan.instance.hardware.rack
    return 1 if isinstance(rack, str) else rack.gpus


def racks_once(site: str, held: SitePlacement) -> Iterator[Violation]:
    """Give no rack two pieces."""
    seen: Counter[int] = Counter()
    for a in held.assignment:
        try:
            seen.update(hostlist.parse(a.racks))
        except ValueError as error:
            yield Violation(rule=f"assignment[{site}]", message=str(error))
    twice = sorted(n for n, times in seen.items() if times > 1)
    if twice:
        yield Violation(rule=f"rack_once[{site}]", message=f"{len(twice)} racks carry two pieces, the first r{twice[0]}")


def in_domain(site: str, held: SitePlacement, f: SiteFabric, racks: int) -> Iterator[Violation]:
    """Keep every rack in the site and in the leaf domain that its piece names."""
    size = max(1, f.leaf_domain_racks)
    for a in held.assignment:
        try:
            hosts = hostlist.parse(a.racks)
        except ValueError:
            continue
        for h in hosts:
            if h >= racks:
                yield Violation(rule=f"rack_exists[{site}]", message=f"r{h} of stage {a.stage}: the site has racks 0 to {racks - 1}")
                break
            if h // size != a.leaf_domain:
                yield Violation(rule=f"leaf_domain[{site}]", message=f"r{h} of stage {a.stage} stands in domain {h // size}, not {a.leaf_domain}")
                break
