"""The tables of a site.toml that a calibration fills in, with intervals as comments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rtsched.calibrate.intervals import Estimate, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.calibrate import Calibration, Loads, RequestedTimes, Speeds


def site_toml(found: Calibration) -> str:
    """Return the text of a site.toml: what was estimated as settings, what was not as comments.

    Of nodes that no job compares, those of the part with the most jobs get speeds.
    """
    lines = [
        f"# Made by `rtsched calibrate` from {found.jobs:,} jobs of {', '.join(found.sources)}.",
        "# In brackets: 95 % intervals.",
        *(f"# Assumed: {sentence}" for sentence in found.notes),
        "",
        *_requests(found.requests),
        "",
        "[workload]",
        f"unit = {_text(found.unit)}",
        *_loads(found.loads),
        "",
        *_speeds(found.speeds, found.places),
    ]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def interval(found: Estimate, digits: int = 3) -> str:
    """Return an interval as text: `0.51 to 0.54`."""
    return f"{found.low:.{digits}g} to {found.high:.{digits}g}"


def jobs_are(loads: Loads) -> str:
    """Return the rule of `[workload]` that makes jobs such loads."""
    values = (loads.cms, loads.cps, loads.setup_link, loads.setup_node)
    return ":".join(["divisible", *(f"{each.value:.6g}" for each in values)])


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _requests(found: RequestedTimes | Refused) -> Sequence[str]:
    if isinstance(found, Refused):
        return [f"# Requested times: not estimated, {found.reason}."]
    lines = [
        f"# Requested times ({found.jobs:,} jobs of {found.users:,} users):",
        f"#   killed at the limit: {found.at_limit.value:.2%} [{interval(found.at_limit)}]",
    ]
    for part, estimate in found.quantiles.items():
        if isinstance(estimate, Refused):
            lines.append(f"#   {part:.4g} of the jobs: not estimated, {estimate.reason}.")
        else:
            lines.append(
                f"#   {part:.4g} of the jobs need at most {estimate.value:.3g} of the requested "
                f"time [{interval(estimate)}]"
            )
    return lines


def _loads(found: Loads | Refused) -> Sequence[str]:
    if isinstance(found, Refused):
        return [f"# jobs_are is not set: {found.reason}."]
    unit = "MB of input" if found.sigma_known else "unit; cms + cps = 1, as loads are not known"
    return [
        f"# cms {found.cms.value:.4g} [{interval(found.cms)}] s per {unit}",
        f"# cps {found.cps.value:.4g} [{interval(found.cps)}]",
        f"# set-up of a transmission {found.setup_link.value:.4g} "
        f"[{interval(found.setup_link)}] s, of a computation {found.setup_node.value:.4g} "
        f"[{interval(found.setup_node)}] s",
        "# This takes every job for a divisible load: right for a site that runs such loads only.",
        f'jobs_are = "{jobs_are(found)}"',
    ]


def _speeds(found: Speeds | Refused, places: Sequence[str]) -> Sequence[str]:
    if isinstance(found, Refused):
        return [f"# speeds is not set: {found.reason}."]
    lines = ["[workload.speeds]"]
    for node, part, fastest, speed, jobs in zip(
        found.node.tolist(),
        found.component.tolist(),
        found.fastest.tolist(),
        found.speed,
        found.jobs.tolist(),
        strict=True,
    ):
        note = f"[{interval(speed)}], {jobs:,} jobs{', fastest' if fastest else ''}"
        comment = "" if part == 0 else "# no job compares it with the above: "
        lines.append(f"{comment}{_text(places[node])} = {speed.value:.4g}  # {note}")
    return lines
