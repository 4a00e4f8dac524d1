"""The papers behind personalised methods."""

from __future__ import annotations

from fedskew.catalogue.data_papers import Paper

__all__ = ["PERSONAL"]

PERSONAL: dict[str, Paper] = {
    "arivazhagan2019": Paper(
        "Arivazhagan, Manoj Ghuhan and Aggarwal, Vinay and Singh, Aaditya Kumar and Choudhary, Sunav",
        "Federated Learning with Personalization Layers",
        "arXiv:1912.00818",
        2019,
        "misc",
    ),
    "chen2022rod": Paper(
        "Chen, Hong-You and Chao, Wei-Lun",
        "On Bridging Generic and Personalized Federated Learning for Image Classification",
        "ICLR",
        2022,
    ),
    "collins2021": Paper(
        "Collins, Liam and Hassani, Hamed and Mokhtari, Aryan and Shakkottai, Sanjay",
        "Exploiting Shared Representations for Personalized Federated Learning",
        "ICML",
        2021,
    ),
    "deng2020": Paper(
        "Deng, Yuyang and Kamani, Mohammad Mahdi and Mahdavi, Mehrdad",
        "Adaptive Personalized Federated Learning",
        "arXiv:2003.13461",
        2020,
        "misc",
    ),
    "li2021ditto": Paper(
        "Li, Tian and Hu, Shengyuan and Beirami, Ahmad and Smith, Virginia",
        "Ditto: Fair and Robust Federated Learning Through Personalization",
        "ICML",
        2021,
    ),
    "li2021fedbn": Paper(
        "Li, Xiaoxiao and Jiang, Meirui and Zhang, Xiaofei and Kamp, Michael and Dou, Qi",
        "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
        "ICLR",
        2021,
    ),
    "li2023etf": Paper(
        "Li, Zexi and Shang, Xinyi and He, Rui and Lin, Tao and Wu, Chao",
        "No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with Synthetic and Fixed Classifier",
        "ICCV",
        2023,
    ),
    "liang2020": Paper(
        "Liang, Paul Pu and others",
        "Think Locally, Act Globally: Federated Learning with Local and Global Representations",
        "arXiv:2001.01523",
        2020,
        "misc",
    ),
    "oh2022": Paper(
        "Oh, Jaehoon and Kim, Sangmook and Yun, Se-Young",
        "FedBABU: Toward Enhanced Representation for Federated Image Classification",
        "ICLR",
        2022,
    ),
    "xiao2024": Paper(
        "Xiao, Zikai and Chen, Zihan and Liu, Liyinglan and Feng, Yang and Wu, Jian and Liu, Wanlu and "
        "Zhou, Joey Tianyi and Yang, Howard Hao and Liu, Zuozhu",
        "FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data",
        "ICLR",
        2024,
    ),
}
