"""What squeue prints, for tests of the adapter."""

import numpy as np

from rtsched.adapters.slurm.route import EXCLUSIVE_SHOWN, JobReader
from rtsched.adapters.slurm.rows import JobRows
from rtsched.logs.node_requests import Hardware
from rtsched.model.cluster import Cluster

TOKEN = "0123456789ab"  # noqa: S105 - of the delimiters

PLAIN = {
    "jobid": "12",
    "userid": "1000",
    "jobarrayid": "12",
    "username": "ann",
    "account": "physics",
    "partition": "all,quick",
    "qos": "normal",
    "state": "PENDING",
    "reason": "Resources",
    "nodelist": "",
    "feature": "(null)",
    "reservation": "(null)",
    "submittime": "1795317074",
    "eligibletime": "1795320674",
    "starttime": "N/A",
    "endtime": "N/A",
    "timelimit": "1-00:02:00",
    "deadline": "1795335074",
    "numcpus": "8",
    "minmemory": "4G",
    "nice": "-5",
    "prioritylong": "4294901760",
    "tres": "cpu=8,mem=8G,node=2,billing=8",
    "exclusive": "NO",
    "maxnodes": "4",
    "dependency": "afterok:1(unfulfilled)",
    "reqnodes": "",
    "excnodes": "",
    "licenses": "(null)",
    "tres-per-node": "N/A",
    "tres-per-job": "gres/gpu:1",
    "tres-per-socket": "N/A",
    "tres-per-task": "N/A",
    "hetjobid": "N/A",
    "exit_code": "0:0",
    "restartcnt": "0",
    "requeue": "1",
    "admin_comment": "rtsched:abc",
    "name": "a name",
    "comment": "(null)",
}


def alike(cluster: Cluster) -> Hardware:
    """Return what each node of a cluster has: cores of one thread, and one socket."""
    count = len(cluster)
    one, much = np.ones(count, np.int64), np.full(count, 1 << 40)
    cores = cluster.nodes.cores.astype(np.int64)
    return Hardware(cores, one, cores[:, None], much, much, {})


def printed(*jobs: dict[str, str]) -> str:
    """Return what squeue prints of jobs."""
    fields = [field.split(":0", 1) for field in JobReader(TOKEN).format.split(",")]
    lines = ["".join((PLAIN | job)[name] + end for name, end in fields) for job in jobs]
    return "".join(line + "\n" for line in lines)


def job_rows(output: str, release: tuple[int, int] = EXCLUSIVE_SHOWN) -> JobRows:
    """Return the jobs that squeue of a release printed."""
    return JobReader(TOKEN, release).read([output.encode()])
