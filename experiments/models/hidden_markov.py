"""A hidden Markov model with three states and 250 steps, its path summed out.

  transition_k ~ Dirichlet(1 + 4 e_k),  k = 1..3
  means = Ascending(z): m_1 = z_1, m_{k+1} = m_k + exp(z_{k+1})
  z_1 ~ N(-2, 2^2),  z_2, z_3 ~ N(0.5, 0.7^2)
  scale_k ~ LogNormal(0, 0.5)
  state_1 uniform,  state_{t+1} ~ transition_{state_t}
  seen_t ~ N(means_{state_t}, scale_{state_t}^2)

States persist, and the forward algorithm sums over states. Data: simulated at a
fixed seed.
"""

import numpy as np


def data():
  rng = np.random.RandomState(105)
  rows = np.cumsum([[0.9, 0.07, 0.03], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]], 1)
  states = [0]
  for uniform in rng.uniform(size=249):
    states.append(min(int((uniform > rows[states[-1]]).sum()), 2))
  means, scale = np.array([-1.5, 0.0, 2.5]), np.array([0.8, 0.7, 1.2])
  return dict(seen=rng.normal(means[states], scale[states]))


def tfp_model(seen):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfb, tfd = tfp.bijectors, tfp.distributions
  Root = tfd.JointDistributionCoroutine.Root

  @tfd.JointDistributionCoroutine
  def model():
    transition = yield Root(
      tfd.Independent(
        tfd.Dirichlet(1.0 + 4.0 * tf.eye(3)), 1, name='transition'
      )
    )
    means = yield Root(
      tfd.TransformedDistribution(
        tfd.MultivariateNormalDiag([-2.0, 0.5, 0.5], [2.0, 0.7, 0.7]),
        tfb.Ascending(),
        name='means',
      )
    )
    scale = yield Root(tfd.Sample(tfd.LogNormal(0.0, 0.5), 3, name='scale'))
    yield tfd.HiddenMarkovModel(
      tfd.Categorical(logits=tf.zeros(3)),
      tfd.Categorical(probs=transition),
      tfd.Normal(means, scale),
      num_steps=250,
      name='seen',
    )

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen):
  import jax
  import jax.numpy as jnp
  import numpyro
  from numpyro import distributions as dist

  loc, width = np.array([-2.0, 0.5, 0.5]), np.array([2.0, 0.7, 0.7])

  def model():
    with numpyro.plate('states', 3):
      transition = numpyro.sample(
        'transition', dist.Dirichlet(1.0 + 4.0 * np.eye(3))
      )
      scale = numpyro.sample('scale', dist.LogNormal(0.0, 0.5))
    means = numpyro.sample(
      'means',
      dist.TransformedDistribution(
        dist.Normal(loc, width).to_event(1), dist.transforms.OrderedTransform()
      ),
    )
    emission = dist.Normal(means, scale).log_prob(seen[:, None])

    def step(alpha, emitted):
      paths = alpha[:, None] + jnp.log(transition)
      return jax.nn.logsumexp(paths, axis=0) + emitted, None

    alpha = emission[0] - np.log(3.0)
    alpha, _ = jax.lax.scan(step, alpha, emission[1:])
    numpyro.factor('seen', jax.nn.logsumexp(alpha))

  return model


def pymc_model(seen):
  import pymc as pm
  import pytensor
  import pytensor.tensor as pt

  def step(emitted, alpha, log_transition):
    return pt.logsumexp(alpha[:, None] + log_transition, axis=0) + emitted

  with pm.Model() as model:
    transition = pm.Dirichlet('transition', 1.0 + 4.0 * np.eye(3))
    means = pm.Flat(
      'means',
      shape=3,
      transform=pm.distributions.transforms.ordered,
      initval=[-2.0, 0.0, 2.0],
    )
    pm.Potential('first', pm.logp(pm.Normal.dist(-2.0, 2.0), means[0]))
    gaps = pm.logp(pm.LogNormal.dist(0.5, 0.7), pt.diff(means))
    pm.Potential('gaps', gaps.sum())
    scale = pm.LogNormal('scale', 0.0, 0.5, shape=3)
    emission = pm.logp(pm.Normal.dist(means, scale), seen[:, None])
    alpha, _ = pytensor.scan(
      step,
      sequences=[emission[1:]],
      outputs_info=[emission[0] - np.log(3.0)],
      non_sequences=[pt.log(transition)],
    )
    pm.Potential('seen', pt.logsumexp(alpha[-1]))
  return model
