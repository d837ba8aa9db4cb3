"""Who beats whom: Bradley-Terry for forty players with a home advantage.

  spread ~ HalfNormal(1),  edge ~ N(0, 0.5^2)
  skill_j ~ N(0, spread^2),  j = 1..40
  P(home wins game_i) = sigmoid(edge + skill_{home(i)} - skill_{away(i)})

Skills are centered. The data depend only on differences of skills, so the prior
alone fixes their mean. Data: simulated at a fixed seed from this model, 400
games. Some players have few games.
"""

import numpy as np


def data():
  rng = np.random.RandomState(114)
  skill = rng.normal(scale=0.8, size=40)
  often = rng.dirichlet(2.0 * np.ones(40))
  pairs = np.array([rng.choice(40, 2, False, p=often) for _ in range(400)])
  home, away = pairs.astype(np.int32).T
  win = 1.0 / (1.0 + np.exp(-0.3 - skill[home] + skill[away]))
  won = (rng.uniform(size=400) < win).astype(np.int32)
  return dict(won=won, home=home, away=away)


def tfp_model(won, home, away):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    spread = yield tfd.HalfNormal(1.0, name='spread')
    edge = yield tfd.Normal(0.0, 0.5, name='edge')
    skill = yield tfd.Sample(tfd.Normal(0.0, spread), 40, name='skill')
    logits = edge + tf.gather(skill, home) - tf.gather(skill, away)
    yield tfd.Bernoulli(logits=logits, name='won')

  return model.experimental_pin(won=won)


def numpyro_model(won, home, away):
  import numpyro
  from numpyro import distributions as dist

  def model():
    spread = numpyro.sample('spread', dist.HalfNormal(1.0))
    edge = numpyro.sample('edge', dist.Normal(0.0, 0.5))
    with numpyro.plate('players', 40):
      skill = numpyro.sample('skill', dist.Normal(0.0, spread))
    logits = edge + skill[home] - skill[away]
    with numpyro.plate('games', won.size):
      numpyro.sample('won', dist.Bernoulli(logits=logits), obs=won)

  return model


def pymc_model(won, home, away):
  import pymc as pm

  with pm.Model() as model:
    spread = pm.HalfNormal('spread', 1.0)
    edge = pm.Normal('edge', 0.0, 0.5)
    skill = pm.Normal('skill', 0.0, spread, shape=40)
    logits = edge + skill[home] - skill[away]
    pm.Bernoulli('won', logit_p=logits, observed=won)
  return model
