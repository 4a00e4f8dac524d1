"""Twenty right uses of the public names: type checkers find nothing here. Nothing of it is run."""

import numpy as np
import torch
from torch import nn

import fedskew as fs

fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.1), clients=20, seed=0)
fed2 = fs.federate("mnist", "dirichlet", clients=20, normalize="channel", validation=0.1)
a = fs.run(fed, "fedavg", rounds=3, lr=0.1, epochs=2, batch_size=16)
b = fs.run(fed, fs.methods.fedprox(mu=0.1), fs.Settings(rounds=3))
c = fs.run("digits", "fedavg", clients=10, partition=fs.partitioners.Iid(), options={"partition.alpha": 0.1})
part = fs.parts.Proximal(mu=0.1)
step = fs.steps.SGD(momentum=0.9)
method = fs.Method("mine", parts=(fs.parts.Focal(gamma=2.0), part), local=step, pace=fs.paces.Fixed(epochs=1))
d = fs.run(fed, method, model=nn.Linear(64, 10), engine="batched", monitor="val_loss", patience=3)
weight = fs.weightings.Uniform()
e = fs.methods.fedbal().with_(weighting=weight)
study = fs.study(
    ["fedavg", method], seeds="0-4", rounds=[3, 5], data="digits", lr=0.1, options={"partition.alpha": [0.1, 1]}
)
study.run(processes=2)
x: dict[str, object] = a.summary
y: torch.Tensor = a.predict(np.zeros((1, 64)))
data = fs.from_arrays(np.zeros((4, 3)), np.array([0, 1, 0, 1]))
fs.run(data, "fedavg", clients=2, rounds=1)
trained: fs.Trained = fs.load_model("run")
advice = fs.advise
server = fs.servers.Momentum(lr=1.0, beta=0.9)
selector = fs.selectors.Random()
