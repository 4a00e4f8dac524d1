"""The papers behind ingredients and datasets, by the key that each names as its ``reference``."""

from __future__ import annotations

from fedskew.catalogue.data_papers import DATA_PAPERS, Paper
from fedskew.catalogue.personal_papers import PERSONAL

__all__ = ["PAPERS", "Paper"]

PAPERS: dict[str, Paper] = {
    "acar2021": Paper(
        "Acar, Durmus Alp Emre and others", "Federated Learning Based on Dynamic Regularization", "ICLR", 2021
    ),
    "cao2019": Paper(
        "Cao, Kaidi and Wei, Colin and Gaidon, Adrien and Arechiga, Nikos and Ma, Tengyu",
        "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss",
        "NeurIPS",
        2019,
    ),
    "cho2022": Paper(
        "Cho, Yae Jee and Wang, Jianyu and Joshi, Gauri",
        "Towards Understanding Biased Client Selection in Federated Learning",
        "AISTATS",
        2022,
    ),
    "cui2019": Paper(
        "Cui, Yin and Jia, Menglin and Lin, Tsung-Yi and Song, Yang and Belongie, Serge",
        "Class-Balanced Loss Based on Effective Number of Samples",
        "CVPR",
        2019,
    ),
    "dai2023": Paper(
        "Dai, Yutong and Chen, Zeyuan and Li, Junnan and Heinecke, Shelby and Sun, Lichao and Xu, Ran",
        "Tackling Data Heterogeneity in Federated Learning with Class Prototypes",
        "AAAI",
        2023,
    ),
    "dinh2020": Paper(
        "T. Dinh, Canh and Tran, Nguyen H. and Nguyen, Tuan Dung",
        "Personalized Federated Learning with Moreau Envelopes",
        "NeurIPS",
        2020,
    ),
    "duan2019": Paper(
        "Duan, Moming and others",
        "Astraea: Self-Balancing Federated Learning for Improving Classification Accuracy of Mobile Deep Learning"
        " Applications",
        "ICCD",
        2019,
    ),
    "fallah2020": Paper(
        "Fallah, Alireza and Mokhtari, Aryan and Ozdaglar, Asuman",
        "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach",
        "NeurIPS",
        2020,
    ),
    "fan2024": Paper(
        "Fan, Ziqing and Hu, Shengchao and Yao, Jiangchao and Niu, Gang and Zhang, Ya and Sugiyama, Masashi and"
        " Wang, Yanfeng",
        "Locally Estimated Global Perturbations are Better than Local Perturbations for Federated Sharpness-aware"
        " Minimization",
        "ICML",
        2024,
    ),
    "fedbal": Paper(
        "{Anonymous}",
        "Knowledge Is Not Wisdom: Weight Balancing Mechanism for Local and Global Training in Federated Learning",
        "anonymous submission",
        2023,
        "misc",
    ),
    "fedga": Paper(
        "Xiao, Chenguang and others",
        "FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation",
        "public code Xiao-Chenguang/FedGA",
        2024,
        "misc",
    ),
    "foret2021": Paper(
        "Foret, Pierre and Kleiner, Ariel and Mobahi, Hossein and Neyshabur, Behnam",
        "Sharpness-Aware Minimization for Efficiently Improving Generalization",
        "ICLR",
        2021,
    ),
    "fraboni2021": Paper(
        "Fraboni, Yann and Vidal, Richard and Kameni, Laetitia and Lorenzi, Marco",
        "Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection in Federated Learning",
        "ICML",
        2021,
    ),
    "ghosh2020": Paper(
        "Ghosh, Avishek and Chung, Jichan and Yin, Dong and Ramchandran, Kannan",
        "An Efficient Framework for Clustered Federated Learning",
        "NeurIPS",
        2020,
    ),
    "guo2023": Paper(
        "Guo, Songyue and others",
        "FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution",
        "DASFAA",
        2023,
    ),
    "guo2025": Paper(
        "Guo, Kuangpu and Ding, Yuhe and Liang, Jian and He, Ran and Wang, Zilei and Tan, Tieniu",
        "Exploring Vacant Classes in Label-Skewed Federated Learning",
        "AAAI",
        2025,
    ),
    "hsu2019": Paper(
        "Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew",
        "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
        "arXiv:1909.06335",
        2019,
        "misc",
    ),
    "hsu2020": Paper(
        "Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew",
        "Federated Visual Classification with Real-World Data Distribution",
        "ECCV",
        2020,
    ),
    "huang2021": Paper(
        "Huang, Yutao and Chu, Lingyang and Zhou, Zirui and Wang, Lanjun and Liu, Jiangchuan and Pei, Jian and"
        " Zhang, Yong",
        "Personalized Cross-Silo Federated Learning on Non-IID Data",
        "AAAI",
        2021,
    ),
    "jhunjhunwala2023": Paper(
        "Jhunjhunwala, Divyansh and Wang, Shiqiang and Joshi, Gauri",
        "FedExP: Speeding Up Federated Averaging via Extrapolation",
        "ICLR",
        2023,
    ),
    "kang2020": Paper(
        "Kang, Bingyi and others",
        "Decoupling Representation and Classifier for Long-Tailed Recognition",
        "ICLR",
        2020,
    ),
    "karimireddy2020": Paper(
        "Karimireddy, Sai Praneeth and Kale, Satyen and Mohri, Mehryar and Reddi, Sashank and Stich, Sebastian and"
        " Suresh, Ananda Theertha",
        "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
        "ICML",
        2020,
    ),
    "khalil2023": Paper(
        "Khalil, Ahmad and others", "Label-Aware Aggregation for Improved Federated Learning", "FMEC", 2023
    ),
    "kim2022": Paper(
        "Kim, Jinkyu and Kim, Geeho and Han, Bohyung",
        "Multi-Level Branched Regularization for Federated Learning",
        "ICML",
        2022,
    ),
    "kim2024": Paper(
        "Kim, Geeho and Kim, Jinkyu and Han, Bohyung",
        "Communication-Efficient Federated Learning with Accelerated Client Gradient",
        "CVPR",
        2024,
    ),
    "lee2022": Paper(
        "Lee, Gihun and Jeong, Minchan and Shin, Yongjin and Bae, Sangmin and Yun, Se-Young",
        "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning",
        "NeurIPS",
        2022,
    ),
    "lee2024": Paper(
        "Lee, Gihun and others",
        "FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in Federated Learning",
        "CVPR",
        2024,
    ),
    "li2020": Paper(
        "Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and Talwalkar, Ameet and Smith, Virginia",
        "Federated Optimization in Heterogeneous Networks",
        "MLSys",
        2020,
    ),
    "li2020convergence": Paper(
        "Li, Xiang and others",
        "On the Convergence of FedAvg on Non-IID Data",
        "ICLR",
        2020,
    ),
    "li2021moon": Paper(
        "Li, Qinbin and He, Bingsheng and Song, Dawn", "Model-Contrastive Federated Learning", "CVPR", 2021
    ),
    "li2021rs": Paper(
        "Li, Xin-Chun and Zhan, De-Chuan",
        "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data",
        "KDD",
        2021,
    ),
    "li2022fbl": Paper(
        "Li, Mengke and Cheung, Yiu-ming and Jiang, Juyong",
        "Feature-Balanced Loss for Long-Tailed Visual Recognition",
        "ICME",
        2022,
    ),
    "listozec2025": Paper(
        "Listo Zec, Edvin and Breitholtz, Adam and Johansson, Fredrik D.",
        "Overcoming label shift with target-aware federated learning",
        "arXiv:2411.03799",
        2025,
        "misc",
    ),
    "loshchilov2017": Paper(
        "Loshchilov, Ilya and Hutter, Frank",
        "SGDR: Stochastic Gradient Descent with Warm Restarts",
        "ICLR",
        2017,
    ),
    "loshchilov2019": Paper(
        "Loshchilov, Ilya and Hutter, Frank",
        "Decoupled Weight Decay Regularization",
        "ICLR",
        2019,
    ),
    "luo2021": Paper(
        "Luo, Mi and Chen, Fei and Hu, Dapeng and Zhang, Yifan and Liang, Jian and Feng, Jiashi",
        "No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data",
        "NeurIPS",
        2021,
    ),
    "mcmahan2017": Paper(
        'McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and Ag{\\"u}era y Arcas, Blaise',
        "Communication-Efficient Learning of Deep Networks from Decentralized Data",
        "AISTATS",
        2017,
    ),
    "menon2021": Paper("Menon, Aditya Krishna and others", "Long-Tail Learning via Logit Adjustment", "ICLR", 2021),
    "niu2022": Paper(
        "Niu, Yifan and Deng, Weihong",
        "Federated Learning for Face Recognition with Gradient Correction",
        "AAAI",
        2022,
    ),
    "qu2022": Paper(
        "Qu, Zhe and Li, Xingyu and Duan, Rui and Liu, Yao and Tang, Bo and Lu, Zhuo",
        "Generalized Federated Learning via Sharpness Aware Minimization",
        "ICML",
        2022,
    ),
    "reddi2021": Paper("Reddi, Sashank and others", "Adaptive Federated Optimization", "ICLR", 2021),
    "reyes2021": Paper(
        "Reyes, Jonatan and Di Jorio, Lisa and Low-Kam, Cecile and Kersten-Oertel, Marta",
        "Precision-Weighted Federated Learning",
        "arXiv:2107.09627",
        2021,
        "misc",
    ),
    "sarkar2020": Paper(
        "Sarkar, Dipankar and Narang, Ankur and Rai, Sumit",
        "Fed-Focal Loss for Imbalanced Data Classification in Federated Learning",
        "arXiv:2011.06283",
        2020,
        "misc",
    ),
    "seol2023": Paper(
        "Seol, Mihye and Kim, Taejoon",
        "Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data",
        "Sensors 23(3):1152",
        2023,
        "article",
    ),
    "shang2022": Paper(
        "Shang, Xinyi and Lu, Yang and Huang, Gang and Wang, Hanzi",
        "Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with Federated Features",
        "IJCAI",
        2022,
    ),
    "shen2022": Paper(
        "Shen, Zebang and Cervino, Juan and Hassani, Hamed and Ribeiro, Alejandro",
        "An Agnostic Approach to Federated Learning with Class Imbalance",
        "ICLR",
        2022,
    ),
    "shi2023": Paper(
        "Shi, Yujun and Liang, Jian and Zhang, Wenqing and Tan, Vincent Y. F. and Bai, Song",
        "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning",
        "ICLR",
        2023,
    ),
    "shoham2019": Paper(
        "Shoham, Neta and others",
        "Overcoming Forgetting in Federated Learning on Non-IID Data",
        "arXiv:1910.07796",
        2019,
        "misc",
    ),
    "shuai2022": Paper(
        "Shuai, Xian and others",
        "BalanceFL: Addressing Class Imbalance in Long-Tail Federated Learning",
        "IPSN",
        2022,
    ),
    "son2024": Paper(
        "Son, Ha Min and others",
        "FedUV: Uniformity and Variance for Heterogeneous Federated Learning",
        "CVPR",
        2024,
    ),
    "sun2023smoo": Paper(
        "Sun, Yan and Shen, Li and Chen, Shixiang and Ding, Liang and Tao, Dacheng",
        "Dynamic Regularized Sharpness Aware Minimization in Federated Learning: Approaching Global Consistency and"
        " Smooth Landscape",
        "ICML",
        2023,
    ),
    "sun2023speed": Paper(
        "Sun, Yan and Shen, Li and Huang, Tiansheng and Ding, Liang and Tao, Dacheng",
        "FedSpeed: Larger Local Interval, Less Communication Round, and Higher Generalization Accuracy",
        "ICLR",
        2023,
    ),
    "wang2020": Paper(
        "Wang, Jianyu and Liu, Qinghua and Liang, Hao and Joshi, Gauri and Poor, H. Vincent",
        "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
        "NeurIPS",
        2020,
    ),
    "wang2021": Paper(
        "Wang, Lixu and Xu, Shichao and Wang, Xiao and Zhu, Qi",
        "Addressing Class Imbalance in Federated Learning",
        "AAAI",
        2021,
    ),
    "xiao2023": Paper(
        "Xiao, Zikai and others",
        "Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer",
        "NeurIPS",
        2023,
    ),
    "xu2021": Paper(
        "Xu, Jing and Wang, Sen and Wang, Liwei and Yao, Andrew Chi-Chih",
        "FedCM: Federated Learning with Client-level Momentum",
        "arXiv:2106.10874",
        2021,
        "misc",
    ),
    "ye2023": Paper(
        "Ye, Rui and Xu, Mingkai and Wang, Jianyu and Xu, Chenxin and Chen, Siheng and Wang, Yanfeng",
        "FedDisco: Federated Learning with Discrepancy-Aware Collaboration",
        "ICML",
        2023,
    ),
    "zhang2022": Paper(
        "Zhang, Jie and others",
        "Federated Learning with Label Distribution Skew via Logits Calibration",
        "ICML",
        2022,
    ),
}
PAPERS |= DATA_PAPERS | PERSONAL
