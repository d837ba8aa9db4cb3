"""Target calls of the Hamiltonian kernel, counted in eager execution."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import random
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results
from tfp_adaptive.linear import log_det


def _counted_steps(length, num_adapting, num_steps=4, **options):
  """Returns calls and results of every step, and the cost that is promised."""
  target = targets.CountedTarget()
  kernel = tfpa.entropy_adaptive_hamiltonian(
    target,
    num_adapting,
    num_leapfrog_steps=length,
    preconditioner=tfpa.preconditioners.cholesky(init_scale=0.3),
    **options,
  )
  state = tf.ones([3, 2], tf.float64)
  results = kernel.bootstrap_results(state)
  calls, all_results = [], []
  for seed in targets.seeds(num_steps):
    target.calls.update(dict.fromkeys(target.calls, 0))
    state, results = kernel.one_step(state, results, seed=seed)
    calls.append(dict(target.calls))
    all_results.append(results)
  return calls, all_results, tfpa.cost_per_step(kernel, num_adapting > 0)


def _num_terms(results):
  return int(results.criterion_state.penalty.num_log_det_terms)


@pytest.mark.parametrize('length', [2, 5])
def test_an_adapting_step_makes_one_hessian_product_more_than_terms(length):
  calls, all_results, _ = _counted_steps(length, 8, num_steps=8)
  drawn = [_num_terms(results) for results in all_results]
  assert min(drawn) >= 2 and len(set(drawn)) > 1
  for counted, num_terms in zip(calls, drawn):
    # A product evaluates the target and its gradient on the way.
    made = length + num_terms + 1
    products = num_terms + 1
    assert counted == dict(target=made, gradient=made, hessian_vector=products)


def test_a_drawn_number_of_steps_is_what_a_step_costs():
  calls, all_results, cost = _counted_steps((1, 5), 0, num_steps=12)
  drawn = [
    int(mh_results(r).proposed_results.trajectory.num_steps)
    for r in all_results
  ]
  assert [counted['gradient'] for counted in calls] == drawn
  assert len(set(drawn)) > 1
  assert cost[:3] == (3, 3, 0)  # The mean of 1, ..., 5.


def test_the_promised_products_are_the_mean_of_those_made():
  _, _, cost = _counted_steps(3, 1, 1)
  num_draws = 4000

  @tf.function(autograph=False)
  def draws():
    return tf.map_fn(
      lambda i: log_det.Series(2).draw_num_terms(
        tf.float32, random.fold_in(tf.constant([5, 6]), i)
      ),
      tf.range(num_draws),
    )

  # N + 1 products; the geometric part of N has variance 0.5 / 0.25 = 2.
  standard_error = (2.0 / num_draws) ** 0.5
  products = draws().numpy() + 1.0
  assert abs(products.mean() - cost.hessian_vector) < 4 * standard_error
  assert cost.target == cost.gradient == 3
  assert np.isclose(products.var(), 2.0, rtol=0.2)
