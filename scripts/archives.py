"""Which archives of the repository are finished: the study of the same name lacks no run. It needs the data."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fedskew.studies.archiving import reuse_archived
from fedskew.studies.lines import archives, files_of
from fedskew.studies.shipped import shipped
from fedskew.studies.spec import Spec, read_spec
from fedskew.studies.study import Study
from fedskew_papers import names as protocols
from fedskew_papers.tables import protocol

ROOT = Path(__file__).parents[1]
FOLDERS = ("results/studies", "results/papers")


def spec_of(name: str) -> Spec | None:
    """The study of an archive, that of a paper at the paper's scale; None where none has its name."""
    if file := shipped(name):
        return read_spec(file)
    return protocol(name).at("paper") if name in protocols() else None


def state_of(archive: Path) -> str:
    """ "finished", how many runs are missing here, or why nobody knows."""
    spec = spec_of(archive.stem)
    if spec is None:
        return "no study of this name"
    with tempfile.TemporaryDirectory() as folder:
        study = Study(spec, Path(folder) / "store")
        reuse_archived(study, archive.parent, keep=False)
        missing = len(study.missing(study.trials())) + len(study.missing())
        refused = sum(one.cell.experiment is None for one in study.plan())
    return f"{missing} missing, {refused} refused" if missing or refused else "finished"


def main() -> None:
    """List them."""
    for archive in (file for folder in FOLDERS for file in archives(ROOT / folder)):
        files = ", ".join(f"{file.name} {file.stat().st_size / 1e6:.2f} MB" for file in files_of(archive))
        print(f"{state_of(archive):25}  {files}", flush=True)


if __name__ == "__main__":
    main()
