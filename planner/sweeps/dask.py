"""A Dask cluster as an executor: an address, or `local` for processes of this machine with their own scheduler."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from planner.errors import InputError
from planner.optional_packages import needed
from planner.sweeps.executors import TRIES, cores

LOCAL = "local"


@contextmanager
def dask_executor(address: str, workers: int | None = None) -> Iterator[Executor]:
    """Connect to a scheduler and yield its executor; the scheduler tries points whose workers die elsewhere.

    Raises
    ------
    InputError
        The extra is not installed, or nobody answers at the address.
    """
    with needed("--dask", "distributed", "dask"):
        import dask
        from distributed import Client, LocalCluster
    if address == LOCAL:
        count = workers or cores()
        # One death more than this and a point is given up: it has taken TRIES workers with it.
        with (
            dask.config.set({"distributed.scheduler.allowed-failures": TRIES - 1}),
            LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            yield client.get_executor(pure=False)
        return
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        problem = f"no scheduler answers there ({error})"
        raise InputError(f"--dask {address}: {problem}; give HOST:PORT of a running one, or local") from None
    with client:
        yield client.get_executor(pure=False)
