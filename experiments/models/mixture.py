"""A mixture of three normals with ordered means; components are summed out.

  weights ~ Dirichlet(2, 2, 2)
  means = Ascending(z): m_1 = z_1, m_{k+1} = m_k + exp(z_{k+1})
  z_1 ~ N(-2, 2^2),  z_2, z_3 ~ N(0.5, 0.7^2)
  scale_k ~ LogNormal(0, 0.5)
  seen_i ~ sum_k weights_k N(means_k, scale_k^2)

The order of the means identifies the components. Data: simulated at a fixed
seed from this model, 300 values. The first two components overlap.
"""

import numpy as np


def data():
  rng = np.random.RandomState(104)
  component = rng.choice(3, size=300, p=[0.3, 0.45, 0.25])
  means, scale = np.array([-2.0, 0.0, 3.0]), np.array([0.9, 0.6, 1.2])
  return dict(seen=rng.normal(means[component], scale[component]))


def tfp_model(seen):
  import tensorflow_probability as tfp

  tfb, tfd = tfp.bijectors, tfp.distributions

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    weights = yield tfd.Dirichlet([2.0, 2.0, 2.0], name='weights')
    means = yield tfd.TransformedDistribution(
      tfd.MultivariateNormalDiag([-2.0, 0.5, 0.5], [2.0, 0.7, 0.7]),
      tfb.Ascending(),
      name='means',
    )
    scale = yield tfd.Sample(tfd.LogNormal(0.0, 0.5), 3, name='scale')
    mixture = tfd.MixtureSameFamily(
      tfd.Categorical(probs=weights), tfd.Normal(means, scale)
    )
    yield tfd.Sample(mixture, 300, name='seen')

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen):
  import numpyro
  from numpyro import distributions as dist

  loc, width = np.array([-2.0, 0.5, 0.5]), np.array([2.0, 0.7, 0.7])

  def model():
    weights = numpyro.sample('weights', dist.Dirichlet(2.0 * np.ones(3)))
    means = numpyro.sample(
      'means',
      dist.TransformedDistribution(
        dist.Normal(loc, width).to_event(1), dist.transforms.OrderedTransform()
      ),
    )
    with numpyro.plate('components', 3):
      scale = numpyro.sample('scale', dist.LogNormal(0.0, 0.5))
    mixture = dist.MixtureSameFamily(
      dist.Categorical(probs=weights), dist.Normal(means, scale)
    )
    with numpyro.plate('rows', 300):
      numpyro.sample('seen', mixture, obs=seen)

  return model


def pymc_model(seen):
  import pymc as pm
  import pytensor.tensor as pt

  with pm.Model() as model:
    weights = pm.Dirichlet('weights', 2.0 * np.ones(3))
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
    pm.NormalMixture('seen', w=weights, mu=means, sigma=scale, observed=seen)
  return model
