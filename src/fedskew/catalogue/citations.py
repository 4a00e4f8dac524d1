"""Papers as a line and as BibTeX; and fedskew itself."""

from __future__ import annotations

from fedskew import __version__
from fedskew.catalogue.papers import PAPERS
from fedskew.errors import unknown

__all__ = ["bibtex", "short", "software"]


def short(key: str) -> str:
    """ "McMahan et al. 2017, Communication-Efficient Learning ... (AISTATS)"; a key that is unknown is given back."""
    if key not in PAPERS:
        return key  # a user's own component may cite in its own words
    paper = PAPERS[key]
    first, *others = paper.authors.split(" and ")
    names = first.strip("{}").split(",")[0] + (" et al." if others else "")
    return f"{names} {paper.year}, {paper.title} ({paper.venue})"


def software() -> str:
    """The BibTeX entry of fedskew itself; CITATION.cff says the same, and a test compares."""
    lines = [
        ("author", "{The fedskew developers}"),
        ("title", "{fedskew: federated learning when labels are skewed}"),
        ("version", __version__),
        ("note", "Python library, Apache-2.0"),
    ]
    return "\n".join(["@software{fedskew,", *(f"  {name} = {{{value}}}," for name, value in lines), "}"])


def bibtex(key: str) -> str:
    """The BibTeX entry of a key. Raises ConfigError for an unknown one."""
    if key not in PAPERS:
        raise unknown("reference", key, PAPERS)
    paper = PAPERS[key]
    kinds = {"inproceedings": "booktitle", "article": "journal", "misc": "howpublished", "techreport": "institution"}
    field = kinds[paper.kind]
    lines = [
        ("author", paper.authors),
        ("title", f"{{{paper.title}}}"),
        (field, paper.venue),
        ("year", str(paper.year)),
    ]
    return "\n".join([f"@{paper.kind}{{{key},", *(f"  {name} = {{{value}}}," for name, value in lines), "}"])
