"""A second, independent reading of the method cards: whole federated rounds in float64 numpy, gradients by hand.

Nothing here imports the library or an autograd. `model` is the network and its backward pass, `losses` every client
loss with its gradient, `solvers` the local steps, `servers` the weights and server updates, `selection` who takes part;
`ingredients` says what a method is made of, and `rounds.run` carries it out for a recorded plan.
"""

from .rounds import Problem, RoundPlan, run

__all__ = ["Problem", "RoundPlan", "run"]
