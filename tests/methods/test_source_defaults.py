"""Each changed default is the source's value."""

from __future__ import annotations

from fedskew import methods as m
from fedskew.method.paces import Fixed
from fedskew.method.servers import Adagrad, Adam, Momentum, Yogi
from fedskew.method.steps import SGD
from fedskew.method.weightings import Uniform
from fedskew.methods.fedgrab import PriorAnalyser


def test_moon_has_mu_5_and_a_head_of_256_in_the_classification_path() -> None:
    part = m.moon().parts[-1]
    assert (part.mu, part.temperature, part.projection, m.moon().projection) == (5.0, 0.5, 256, 256)


def test_climb_has_the_dual_rate_and_tolerance_of_the_authors_scripts() -> None:
    assert (m.climb().weighting.dual_lr, m.climb().weighting.eps) == (2.0, 0.01)


def test_fedrl_has_63_rows_a_class_a_uniform_mean_and_the_authors_rate() -> None:
    method = m.fedrl()
    assert method.parts[0].auxiliary == 63 and method.weighting == Uniform()
    assert method.pace == Fixed(epochs=2, lr=0.001, batch_size=64)
    assert method.local == SGD(momentum=0.9, weight_decay=5e-4)


def test_fedgrab_has_the_authors_rate_and_momentum_and_no_option_of_the_released_hook() -> None:
    method = m.fedgrab()
    assert (method.pace.lr, method.local.momentum) == (0.03, 0.5)
    assert len(method.parts) == 1 and not method.parts[0].release
    assert m.fedgrab(analyser=True).parts[1:] == (PriorAnalyser(),)


def test_creff_trains_its_head_by_mini_batches_and_matches_the_bias() -> None:
    part = m.creff().parts[-1]
    assert (part.head_epochs, part.head_batch, part.head_lr, part.match_bias) == (300, 32, 0.01, True)


def test_adagrad_has_no_first_moment_and_adam_and_yogi_have_one() -> None:
    assert (Adagrad().beta1, m.fedadagrad().server.beta1) == (0.0, 0.0)
    assert (Adam().beta1, Yogi().beta1, m.fedadam().server.beta1, m.fedyogi().server.beta1) == (0.9,) * 4


def test_fedavgm_offers_nesterov() -> None:
    assert not m.fedavgm().server.nesterov and m.fedavgm(nesterov=True).server == Momentum(1.0, 0.9, nesterov=True)


def test_perfedavg_has_a_rate_of_the_authors_size() -> None:
    method = m.perfedavg()
    assert 0.001 <= method.pace.lr <= 0.003 and 0.005 <= method.local.alpha <= 0.03


def test_balancefl_has_the_rate_momentum_and_weight_decay_of_its_code() -> None:
    assert (m.balancefl().pace.lr, m.balancefl().local) == (0.005, SGD(momentum=0.9, weight_decay=1e-4))
