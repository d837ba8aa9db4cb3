"""Weekly cases of an epidemic: SIR as an ODE, counts wider than Poisson.

  contact ~ LogNormal(log 1.5, 0.5),  recovery ~ LogNormal(log 0.7, 0.4)
  infected ~ LogNormal(log 20, 1),  reported ~ Beta(2, 4)
  concentration ~ Gamma(2, rate=0.1)
  S' = -contact S I,  I' = contact S I - recovery I,  per week
  I(0) = infected / 10000,  S(0) = 1 - I(0)
  count_w ~ NegativeBinomial(mean, concentration)
  mean = 0.1 + 10000 reported (S(w - 1) - S(w))

RK4 with four steps a week is part of the model, so that languages agree. New
cases are integrated from 0 in every week, because the difference of S has too
few digits in float32. Rates, start and reporting trade off. Data: simulated at
a fixed seed, 26 weeks.
"""

import math

import numpy as np


def _week(susceptible, infected, contact, recovery):
  """Returns S and I a week later, and the new cases of this week."""

  def slope(s, i):
    new = contact * s * i
    return -new, new - recovery * i, new

  state, step = (susceptible, infected, 0.0 * infected), 0.25
  for _ in range(4):
    s, i, _ = state
    k1 = slope(s, i)
    k2 = slope(s + 0.5 * step * k1[0], i + 0.5 * step * k1[1])
    k3 = slope(s + 0.5 * step * k2[0], i + 0.5 * step * k2[1])
    k4 = slope(s + step * k3[0], i + step * k3[1])
    state = tuple(
      x + step / 6.0 * (a + 2.0 * b + 2.0 * c + d)
      for x, a, b, c, d in zip(state, k1, k2, k3, k4)
    )
  return state


def data():
  rng = np.random.RandomState(108)
  cases, state = [], (1.0 - 15e-4, 15e-4)
  for _ in range(26):
    *state, new = _week(*state, contact=1.4, recovery=0.65)
    cases.append(0.1 + 10000 * 0.3 * new)
  rate = rng.gamma(12.0, np.array(cases) / 12.0)
  return dict(count=rng.poisson(rate).astype(np.int64))


def tfp_model(count):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  Root = tfd.JointDistributionCoroutine.Root

  # XLA cannot compile a vectorized scan. Batches are explicit; time is last.
  @tfd.JointDistributionCoroutine
  def model():
    contact = yield Root(tfd.LogNormal(math.log(1.5), 0.5, name='contact'))
    recovery = yield Root(tfd.LogNormal(math.log(0.7), 0.4, name='recovery'))
    infected = yield Root(tfd.LogNormal(math.log(20.0), 1.0, name='infected'))
    reported = yield Root(tfd.Beta(2.0, 4.0, name='reported'))
    concentration = yield Root(tfd.Gamma(2.0, 0.1, name='concentration'))
    start = infected / 10000.0
    _, _, new = tf.scan(
      lambda state, _: _week(state[0], state[1], contact, recovery),
      tf.range(26),
      initializer=(1.0 - start, start, tf.zeros_like(start)),
    )
    mean = 0.1 + 10000.0 * reported * new
    logits = tf.einsum('t...->...t', tf.math.log(mean / concentration))
    yield tfd.Independent(
      tfd.NegativeBinomial(concentration[..., tf.newaxis], logits=logits),
      1,
      name='count',
    )

  return model.experimental_pin(count=np.float32(count))


def numpyro_model(count):
  import jax
  import numpyro
  from numpyro import distributions as dist

  def model():
    contact = numpyro.sample('contact', dist.LogNormal(math.log(1.5), 0.5))
    recovery = numpyro.sample('recovery', dist.LogNormal(math.log(0.7), 0.4))
    infected = numpyro.sample('infected', dist.LogNormal(math.log(20.0), 1.0))
    reported = numpyro.sample('reported', dist.Beta(2.0, 4.0))
    concentration = numpyro.sample('concentration', dist.Gamma(2.0, 0.1))

    def step(state, _):
      *state, new = _week(*state, contact, recovery)
      return tuple(state), new

    start = infected / 10000.0
    _, new = jax.lax.scan(step, (1.0 - start, start), length=26)
    mean = 0.1 + 10000.0 * reported * new
    with numpyro.plate('weeks', 26):
      numpyro.sample(
        'count', dist.NegativeBinomial2(mean, concentration), obs=count
      )

  return model


def pymc_model(count):
  import pymc as pm
  import pytensor

  with pm.Model() as model:
    contact = pm.LogNormal('contact', math.log(1.5), 0.5)
    recovery = pm.LogNormal('recovery', math.log(0.7), 0.4)
    infected = pm.LogNormal('infected', math.log(20.0), 1.0)
    reported = pm.Beta('reported', 2.0, 4.0)
    concentration = pm.Gamma('concentration', 2.0, 0.1)
    start = infected / 10000.0
    (_, _, new), _ = pytensor.scan(
      _week,
      outputs_info=[1.0 - start, start, None],
      non_sequences=[contact, recovery],
      n_steps=26,
    )
    mean = 0.1 + 10000.0 * reported * new
    pm.NegativeBinomial('count', mu=mean, alpha=concentration, observed=count)
  return model
