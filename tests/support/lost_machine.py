"""Cut a log on a cluster of two machines, of which one is lost in the middle: `python lost_machine.py FOLDER STAGE`.

FOLDER holds log.parquet; the graph is written to FOLDER/STAGE. STAGE is the first word of the progress during which the
machine is lost. Runs in a process of its own, because Ray reads its settings once.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from dysat.data import on_cluster
from dysat.system.parallel.cluster import LOOPBACK, LOOPBACK_ONLY, MODE, TOKEN

os.environ.update({**LOOPBACK_ONLY, MODE: "token", TOKEN: secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"})


def main(folder: Path, stage: str) -> None:
    import ray
    from ray.cluster_utils import Cluster

    on_cluster.LEAST, on_cluster.ENTRIES = 20_000, 200_000
    works: list[Any] = []
    begin = on_cluster._Work.__init__

    def watched(work: Any, *given: Any) -> None:
        begin(work, *given)
        works.append(work)

    on_cluster._Work.__init__ = watched  # type: ignore[method-assign]
    head = {"num_cpus": 1, "node_ip_address": LOOPBACK, "include_dashboard": False}
    machines = Cluster(initialize_head=True, head_node_args=head)
    other = machines.add_node(num_cpus=2, node_ip_address=LOOPBACK)
    machines.wait_for_nodes()
    ray.init(machines.address, logging_level="ERROR", log_to_driver=False)

    def on_progress(text: str) -> None:
        if not text.startswith(stage):
            return
        if stage == "reading":
            started = works[0].a_few_at_once

            def lose_soon(*given: Any) -> Any:
                for number, refs in enumerate(started(*given)):
                    if number == 0 and given[0].__name__ == "_read":
                        time.sleep(0.2)
                        lose([])
                    yield refs

            works[0].a_few_at_once = lose_soon
        else:
            refs = works[0].records if stage == "cutting" else [ref for part in works[0].pieces for ref in part]
            ray.wait(refs, num_returns=len(refs), fetch_local=False)
            lose(refs)

    def lose(refs: list[Any]) -> None:
        """Remove the second machine; some of the objects were there and nowhere else."""
        if refs:
            places = ray.experimental.get_object_locations(refs)
            assert any(place["node_ids"] == [other.node_id] for place in places.values()), places
        machines.remove_node(other, allow_graceful=False)
        (folder / "lost").touch()

    on_cluster.cut_on_cluster(
        folder / "log.parquet", folder / stage, every="4w", weight="weight", on_progress=on_progress
    )
    ray.shutdown()
    machines.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
