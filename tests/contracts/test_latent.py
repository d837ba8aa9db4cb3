"""What kernels for latent Gaussian models owe beyond the common contracts."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import latent_model as model
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core import tfp_private

# The second-order sampler takes the priors of paths alone.
_LATENT = [case for case in registry.LATENT if case.name != 'second_order']
each_latent = pytest.mark.parametrize('case', registry.tiered(_LATENT))


@each_latent
def test_a_step_makes_two_products_with_the_basis(case):
  counts = dict(to_coordinates=0, from_coordinates=0, pull=0)
  prior = model.gaussian_prior()

  def counted(field):
    function = getattr(prior, field)

    def call(*args):
      counts[field] += 1
      return function(*args)

    return call

  prior = prior._replace(**{field: counted(field) for field in counts})
  kernel = model.build(case, prior=prior)
  state = tf.constant(model.LAW.draw(2))
  results = kernel.bootstrap_results(state)
  counts.update(to_coordinates=0, from_coordinates=0, pull=0)
  kernel.one_step(state, results, seed=(0, 1))
  pulls = int(case.uses_gradient)
  assert counts == dict(to_coordinates=0, from_coordinates=1, pull=pulls)
  cost = tfpa.cost_per_step(kernel, adapting=False)
  assert (cost.target, cost.gradient) == (1, pulls)
  assert cost.matrix_product == sum(counts.values())


def _assert_coordinates_are_of(accepted, state):
  prior = model.gaussian_prior()
  np.testing.assert_allclose(
    accepted.coordinates,
    prior.to_coordinates(prior.params, state),
    atol=1e-12,
  )
  np.testing.assert_allclose(
    accepted.target_log_prob, model.log_likelihood(state), rtol=1e-12
  )


@pytest.mark.parametrize(
  'case', registry.tiered([*_LATENT, cases.named('elliptical_slice')])
)
def test_coordinates_in_the_results_stay_those_of_the_state(case):
  if case.learns == 'nothing':
    kernel = case.build(model.log_likelihood, prior=model.gaussian_prior())
  else:
    kernel = model.build(case)
  state = tf.constant(model.LAW.draw(4))
  results = kernel.bootstrap_results(state)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(50):
    state, results = step(state, results, seed)
  _assert_coordinates_are_of(
    tfp_private.get_innermost(results, 'accepted_results'), state
  )


@each_latent
def test_adaptation_ends_after_its_steps_and_frozen_keeps_delta(case):
  kernel = model.build(case, num_adaptation_steps=4)
  start = tf.constant(model.LAW.draw(3))
  step = targets.stepper(kernel, 'graph')
  _, results = targets.run_steps(
    step, start, kernel.bootstrap_results(start), 7
  )
  deltas = [float(tfp_private.get_innermost(r, 'step_size')) for r in results]
  # TFP reports the delta that a step used; the average is used from the fifth.
  assert len(set(deltas[:4])) == 4
  assert len(set(deltas[4:])) == 1
  fixed = tfpa.frozen(kernel, results[-1])
  assert (
    float(fixed.bootstrap_results(start).accepted_results.step_size)
    == (deltas[-1])
  )


@pytest.mark.parametrize(
  'build',
  [
    lambda f, **o: tfpa.marginal_gradient(f, 4, **o),
    lambda f, **o: tfpa.second_order_gradient(f, 4, **o),
    lambda f, **o: tfpa.elliptical_slice(f, **o),
  ],
  ids=['marginal_gradient', 'second_order_gradient', 'elliptical_slice'],
)
@pytest.mark.parametrize('num_chains', [1, 3])
def test_chains_of_a_path_may_be_of_an_unknown_number(build, num_chains):
  prior = tfpa.gaussian_priors.random_walk(np.float64(0.3), model.D, 1.0)
  kernel = build(model.log_likelihood, prior=prior)

  def step(start):
    results = kernel.bootstrap_results(start)
    return kernel.one_step(start, results, seed=tf.constant([1, 2]))[0]

  start = tf.zeros([num_chains, model.D], tf.float64)
  spec = tf.TensorSpec([None, model.D], tf.float64)
  unknown = tf.function(step, input_signature=[spec], autograph=False)
  np.testing.assert_allclose(unknown(start), step(start), rtol=1e-10)
