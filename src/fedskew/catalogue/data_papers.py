"""The papers behind datasets, by the key that each names as its ``reference``; and what is known of a paper."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DATA_PAPERS", "Paper"]


class Paper(NamedTuple):
    """One paper. ``venue`` is a conference or journal; ``kind`` the BibTeX type."""

    authors: str  # "Family, Given and Family, Given"
    title: str
    venue: str
    year: int
    kind: str = "inproceedings"


DATA_PAPERS: dict[str, Paper] = {
    "alcala2011": Paper(
        "Alcal{\\'a}-Fdez, Jes{\\'u}s and others",
        "KEEL Data-Mining Software Tool: Data Set Repository, Integration of Algorithms and Experimental Analysis"
        " Framework",
        "Journal of Multiple-Valued Logic and Soft Computing",
        2011,
        "article",
    ),
    "alpaydin1998": Paper(
        "Alpaydin, Ethem and Kaynak, Cenk",
        "Optical Recognition of Handwritten Digits",
        "UCI Machine Learning Repository, doi:10.24432/C50P49",
        1998,
        "misc",
    ),
    "becker1996": Paper(
        "Becker, Barry and Kohavi, Ronny",
        "Adult",
        "UCI Machine Learning Repository, doi:10.24432/C5XW20",
        1996,
        "misc",
    ),
    "caldas2018": Paper(
        "Caldas, Sebastian and others",
        "LEAF: A Benchmark for Federated Settings",
        "arXiv:1812.01097",
        2018,
        "misc",
    ),
    "cohen2017": Paper(
        "Cohen, Gregory and Afshar, Saeed and Tapson, Jonathan and van Schaik, Andr{\\'e}",
        "EMNIST: an Extension of MNIST to Handwritten Letters",
        "arXiv:1702.05373",
        2017,
        "misc",
    ),
    "janosi1988": Paper(
        "Janosi, Andras and Steinbrunn, William and Pfisterer, Matthias and Detrano, Robert",
        "Heart Disease",
        "UCI Machine Learning Repository, doi:10.24432/C52P4X",
        1988,
        "misc",
    ),
    "krizhevsky2009": Paper(
        "Krizhevsky, Alex",
        "Learning Multiple Layers of Features from Tiny Images",
        "University of Toronto",
        2009,
        "techreport",
    ),
    "le2015": Paper(
        "Le, Ya and Yang, Xuan",
        "Tiny ImageNet Visual Recognition Challenge",
        "Stanford, CS 231N course project",
        2015,
        "misc",
    ),
    "lecun1998": Paper(
        "LeCun, Yann and Bottou, L{\\'e}on and Bengio, Yoshua and Haffner, Patrick",
        "Gradient-Based Learning Applied to Document Recognition",
        "Proceedings of the IEEE 86(11)",
        1998,
        "article",
    ),
    "netzer2011": Paper(
        "Netzer, Yuval and Wang, Tao and Coates, Adam and Bissacco, Alessandro and Wu, Bo and Ng, Andrew Y.",
        "Reading Digits in Natural Images with Unsupervised Feature Learning",
        "NIPS Workshop on Deep Learning and Unsupervised Feature Learning",
        2011,
    ),
    "xiao2017": Paper(
        "Xiao, Han and Rasul, Kashif and Vollgraf, Roland",
        "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
        "arXiv:1708.07747",
        2017,
        "misc",
    ),
}
