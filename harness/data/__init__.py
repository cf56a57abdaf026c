"""Where a task's data set lies and what it is: a data root, the hub's cache, the hub.

Nothing here imports torch, mteb or datasets; huggingface_hub is imported when the hub is asked.
"""

from harness.data.folder import Manifest, content_of, identify, visible_files
from harness.data.hubcache import declared_subsets
from harness.data.huberrors import Unavailable
from harness.data.locate import DataMissing, DataSettings, Located, Origin, at_hand, locate
from harness.data.needs import Need, State, Status, found, needs, status
from harness.data.offline import forbid_network
from harness.data.prepared import datasets_cache, no_bars
from harness.data.pull import pull
from harness.data.sizes import human_size, remote_size, remote_sizes
from harness.data.verify import Problem, verify

__all__ = [
    "DataMissing",
    "DataSettings",
    "Located",
    "Manifest",
    "Need",
    "Origin",
    "Problem",
    "State",
    "Status",
    "Unavailable",
    "at_hand",
    "content_of",
    "datasets_cache",
    "declared_subsets",
    "forbid_network",
    "found",
    "human_size",
    "identify",
    "locate",
    "needs",
    "no_bars",
    "pull",
    "remote_size",
    "remote_sizes",
    "status",
    "verify",
    "visible_files",
]
