"""Combinations by public R and Octave code, called on draws in a file; the code itself is not part of this package.

`combine.R` and `combine.m` beside this file read the draws, call one function of a peer with its default settings,
and write the combined draws and the processor seconds that they took: reading and writing files is not counted. R's
clock counts milliseconds.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_HERE = Path(__file__).resolve().parent
PROGRAMS = {
    "R": ("Rscript", "--vanilla", str(_HERE / "combine.R")),
    "Octave": ("octave-cli", "--quiet", "--no-init-file", str(_HERE / "combine.m")),
}
_COLUMNS = tuple(
    f"parallelMCMCcombine/R/{name}.R"
    for name in ("consensusMCcov", "consensusMCindep", "sampleAvg", "semiparamDPE")
)
_WEIERSTRASS = ("weierstrass/R/weierstrass.r",)
_TREES = tuple(
    f"random-tree-parallel-MCMC/src/{name}.m"
    for name in (
        "PART/MultiStageMCMC",
        "PART/OneStageMCMC",
        "PART/aggregate_PART_onestage",
        "PART/aggregate_PART_pairwise",
        "PART/buildForest",
        "PART/buildTree",
        "PART/part_options",
        "PART/treeNode",
        "PART/treeSampling",
        "PART/cut/consensusMLCut",
        "PART/cut/kdCut",
        "utils/parfor_progress",
    )
)


@dataclass(frozen=True)
class Peer:
    """A function of somebody else's.

    Attributes
    ----------
    program : what runs it
    call : what `combine.R` or `combine.m` calls it
    files : its sources, below the folder of the peers
    slow : whether one combination takes half a minute or more
    """

    program: str
    call: str
    files: tuple[str, ...]
    slow: bool = False

    def missing(self, folder: Path | None) -> str | None:
        """Why it cannot run here, or None."""
        if folder is None:
            return "no --peers FOLDER was given"
        program = PROGRAMS[self.program][0]
        if shutil.which(program) is None:
            return f"{program} is not installed"
        lacking = [file for file in self.files if not (folder / file).is_file()]
        return f"{folder / lacking[0]} is not there" if lacking else None


PEERS = {
    "R consensusMCcov": Peer("R", "consensusMCcov", _COLUMNS),
    "R consensusMCindep": Peer("R", "consensusMCindep", _COLUMNS),
    "R sampleAvg": Peer("R", "sampleAvg", _COLUMNS),
    "R semiparamDPE": Peer("R", "semiparamDPE", _COLUMNS, slow=True),
    "R weierstrass, rejection": Peer("R", "reject", _WEIERSTRASS),
    "R weierstrass, importance": Peer("R", "importance", _WEIERSTRASS),
    "PART kd, pairwise": Peer("Octave", "kd pairwise", _TREES, slow=True),
    "PART ml, pairwise": Peer("Octave", "ml pairwise", _TREES, slow=True),
    "PART kd, one stage": Peer("Octave", "kd onestage", _TREES, slow=True),
    "PART ml, one stage": Peer("Octave", "ml onestage", _TREES, slow=True),
}


def run_peer(
    name: str, folder: str, draws: np.ndarray, seed: int, turns: int, limit: float
) -> tuple[list[float], np.ndarray]:
    """Processor seconds of every repetition, and the combined draws of the last.

    Parameters
    ----------
    name : of `PEERS`
    folder : where the sources lie
    draws : (B, J, d) sub-posterior draws
    seed : of the peer's random numbers
    turns, limit : repetitions, of which none is started after `limit` seconds of them
    """
    peer = PEERS[name]
    with tempfile.TemporaryDirectory() as place:
        given, combined, seconds = (Path(place) / file for file in ("draws", "combined", "seconds"))
        draws.tofile(given)
        numbers = [*draws.shape, seed, turns, limit]
        command = [*PROGRAMS[peer.program], peer.call, folder, str(given), *map(str, numbers)]
        ended = subprocess.run([*command, str(combined), str(seconds)], capture_output=True, text=True)
        # Octave 7 may complain when it leaves although everything was written.
        if not seconds.exists():
            raise RuntimeError(f"{name} wrote no draws. It said: {ended.stderr.strip()[-500:]}")
        taken = [float(value) for value in seconds.read_text().split()]
        return taken, np.fromfile(combined).reshape(-1, draws.shape[-1])


def version(program: str) -> str:
    """The first line in which a program names its version, or that it is not there."""
    command = PROGRAMS[program][0]
    if shutil.which(command) is None:
        return f"no {command}"
    said = subprocess.run([command, "--version"], capture_output=True, text=True)
    return (said.stdout or said.stderr).splitlines()[0]
