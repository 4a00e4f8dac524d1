"""Wrong uses of the public names, one a marked line: type checkers find each of them. Nothing of it is run."""

import fedskew as fs

fed = fs.federate("digits", "dirichlet", clients=20)
fs.parts.Proximal(mu="a")  # wrong
fs.parts.Proximl(mu=0.1)  # wrong
fs.run(fed, "fedavg", ruonds=3)  # wrong
fs.run(fed, "fedavg", rounds="3")  # wrong
fs.run(fed, "fedavg", lr="fast")  # wrong
fs.run(fed, 3)  # wrong
fs.run(fed, "fedavg", engine="quick")  # wrong
fs.run(fed, "fedavg", monitor="loss")  # wrong
fs.run(fed, "fedavg", model=3)  # wrong
fs.federate("digits", "dirichlet", client=20)  # wrong
fs.federate("digits", "dirichlet", clients="20")  # wrong
fs.federate("digits", "dirichlet", normalize="channels")  # wrong
fs.study("fedavg", seeds=0, roundz=3)  # wrong
fs.study(["fedavg"], rounds=["a"])  # wrong
fs.study(["fedavg"], seeds=0.5)  # wrong
fs.methods.fedprox(mu="x")  # wrong
fs.methods.fedavgg()  # wrong
fs.steps.SGD(momentum="high")  # wrong
fs.Settings(rounds="3")  # wrong
fs.partitioners.Dirichlet(alpha="a")  # wrong
fs.Method("m", parts=(fs.steps.SGD,))  # wrong
fs.weightings.Uniform(1)  # wrong
fs.load_model(3)  # wrong
