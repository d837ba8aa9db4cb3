"""Persons answer items, each of which has two parameters.

  ability_i, slope_j, difficulty_j ~ N(0, 1)
  mean_difficulty, log_spread_slope, log_spread_difficulty ~ N(0, 1)
  place_j = mean_difficulty + exp(log_spread_difficulty) difficulty_j
  answers_ij ~ Bernoulli(
    logits = exp(exp(log_spread_slope) slope_j) (ability_i - place_j))

Data: 100 persons and 20 items, simulated. Density and data are those of the
archived study length_targets (tag archive/2026-11-studies).
"""

import numpy as np


def data():
  """Returns answers [100, 20]."""
  random = np.random.default_rng(143)
  ability, slope, difficulty = (random.normal(size=n) for n in [100, 20, 20])
  logits = np.exp(0.5 * slope) * (ability[:, np.newaxis] - difficulty)
  answers = random.uniform(size=logits.shape) < 1.0 / (1.0 + np.exp(-logits))
  return dict(answers=answers.astype(np.int32))


def tfp_model(answers):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  Root = tfd.JointDistributionCoroutine.Root
  num_persons, num_items = answers.shape

  def standard(name, *shape):
    return Root(tfd.Sample(tfd.Normal(0.0, 1.0), shape, name=name))

  @tfd.JointDistributionCoroutine
  def model():
    ability = yield standard('ability', num_persons)
    slope = yield standard('slope', num_items)
    difficulty = yield standard('difficulty', num_items)
    mean = yield standard('mean_difficulty')
    log_spread_slope = yield standard('log_spread_slope')
    log_spread_difficulty = yield standard('log_spread_difficulty')
    slope = tf.exp(tf.exp(log_spread_slope)[..., tf.newaxis] * slope)
    spread = tf.exp(log_spread_difficulty)[..., tf.newaxis]
    place = mean[..., tf.newaxis] + spread * difficulty
    logits = slope[..., tf.newaxis, :] * (
      ability[..., tf.newaxis] - place[..., tf.newaxis, :]
    )
    yield tfd.Independent(tfd.Bernoulli(logits), 2, name='answers')

  return model.experimental_pin(answers=answers)


def numpyro_model(answers):
  import numpyro
  from jax import numpy as jnp
  from numpyro import distributions as dist

  num_persons, num_items = answers.shape
  normal = dist.Normal(0.0, 1.0)

  def model():
    persons = numpyro.plate('persons', num_persons, dim=-2)
    items = numpyro.plate('items', num_items, dim=-1)
    ability = numpyro.sample('ability', normal.expand([num_persons]).to_event())
    slope = numpyro.sample('slope', normal.expand([num_items]).to_event())
    difficulty = numpyro.sample(
      'difficulty', normal.expand([num_items]).to_event()
    )
    mean = numpyro.sample('mean_difficulty', normal)
    log_spread_slope = numpyro.sample('log_spread_slope', normal)
    log_spread_difficulty = numpyro.sample('log_spread_difficulty', normal)
    slope = jnp.exp(jnp.exp(log_spread_slope) * slope)
    place = mean + jnp.exp(log_spread_difficulty) * difficulty
    logits = slope * (ability[:, jnp.newaxis] - place)
    with persons, items:
      numpyro.sample('answers', dist.Bernoulli(logits=logits), obs=answers)

  return model


def pymc_model(answers):
  import pymc as pm

  num_persons, num_items = answers.shape
  with pm.Model() as model:
    ability = pm.Normal('ability', 0.0, 1.0, shape=num_persons)
    slope = pm.Normal('slope', 0.0, 1.0, shape=num_items)
    difficulty = pm.Normal('difficulty', 0.0, 1.0, shape=num_items)
    mean = pm.Normal('mean_difficulty', 0.0, 1.0)
    log_spread_slope = pm.Normal('log_spread_slope', 0.0, 1.0)
    log_spread_difficulty = pm.Normal('log_spread_difficulty', 0.0, 1.0)
    slope = pm.math.exp(pm.math.exp(log_spread_slope) * slope)
    place = mean + pm.math.exp(log_spread_difficulty) * difficulty
    logits = slope * (ability[:, None] - place)
    pm.Bernoulli('answers', logit_p=logits, observed=answers)
  return model
