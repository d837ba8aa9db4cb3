"""Targets of the Stan programs in NumPy and SciPy, written from the programs.

Each takes the published data and the parameters by Stan's names, and returns
what the program adds to `target`, in constrained space, with all constants. The
loops are those of the programs, so that no step is shared with the models.
"""

import numpy as np
from scipy import integrate
from scipy import special
from scipy import stats


def _normal(x, loc, scale):
  return np.sum(stats.norm(loc, scale).logpdf(x))


def _half_cauchy(x, scale):
  return stats.cauchy(0.0, scale).logpdf(x)


def _flat_regression(response, *columns):
  def target(data, beta, sigma):
    mean = beta[0]
    for coefficient, column in zip(beta[1:], columns, strict=True):
      mean = mean + coefficient * column(data)
    return _normal(response(data), mean, sigma)

  return target


def _of(name):
  return lambda data: np.float64(data[name])


def _log(name):
  return lambda data: np.log(np.float64(data[name]))


def _is(name, level):
  return lambda data: np.array([float(entry == level) for entry in data[name]])


def _product(*columns):
  return lambda data: np.prod([column(data) for column in columns], axis=0)


def _scaled(name):
  def column(data):
    centered = data[name] - np.mean(data[name])
    return centered / (2.0 * np.std(centered, ddof=1))

  return column


def _log_product(*names):
  return lambda data: sum(_log(name)(data) for name in names)


def _log_shape(data):
  return _log('diam1')(data) - _log('diam2')(data)


def _ar_k(data, alpha, beta, sigma):
  total = _normal(alpha, 0, 10) + _normal(beta, 0, 10)
  total += _half_cauchy(sigma, 2.5)
  y, order = data['y'], int(data['K'])
  for t in range(order, int(data['T'])):
    mean = alpha
    for k in range(order):
      mean += beta[k] * y[t - k - 1]
    total += _normal(y[t], mean, sigma)
  return total


def _hmm_drive(data, theta1, theta2, phi, **others):
  rate = others['lambda']
  theta = np.stack([theta1, theta2])
  total = sum(
    stats.dirichlet(data['alpha'][k]).logpdf(theta[k] / theta[k].sum())
    for k in range(2)
  )
  for values in (phi, rate):
    total += _normal(values[0], 0, 1) + _normal(values[1], 3, 1)

  def seen(t, k):
    u, v = data['u'][t], data['v'][t]
    return np.log(phi[k]) - phi[k] * u + np.log(rate[k]) - rate[k] * v

  gamma = [seen(0, 0), seen(0, 1)]
  for t in range(1, int(data['N'])):
    gamma = [
      special.logsumexp([gamma[j] + np.log(theta[j, k]) for j in range(2)])
      + seen(t, k)
      for k in range(2)
    ]
  return total + special.logsumexp(gamma)


def _diamonds(data, b, Intercept, sigma):  # noqa: N803
  total = _normal(b, 0, 1) + stats.t(3, 8, 10).logpdf(Intercept)
  total += stats.t(3, 0, 10).logpdf(sigma) - stats.t(3, 0, 10).logsf(0)
  centered = data['X'][:, 1:] - np.mean(data['X'][:, 1:], axis=0)
  return total + _normal(data['Y'], Intercept + centered @ b, sigma)


def _kilpisjarvi(data, alpha, beta, sigma):
  total = _normal(alpha, data['pmualpha'], data['psalpha'])
  total += _normal(beta, data['pmubeta'], data['psbeta'])
  return total + _normal(data['y'], alpha + beta * data['x'], sigma)


def _blr(data, beta, sigma):
  total = _normal(beta, 0, 10) + _normal(sigma, 0, 10)
  return total + _normal(data['y'], data['X'] @ beta, sigma)


def _eight_schools(data, theta_trans, mu, tau):
  theta = theta_trans * tau + mu
  total = _normal(theta_trans, 0, 1) + _normal(data['y'], theta, data['sigma'])
  return total + _normal(mu, 0, 5) + _half_cauchy(tau, 5)


def _covariance(data, rho, alpha, diagonal):
  x = data['x']
  size = len(x)
  covariance = np.empty([size, size])
  for i in range(size):
    for j in range(size):
      exponent = -((x[i] - x[j]) ** 2) / (2 * rho**2)
      covariance[i, j] = alpha**2 * np.exp(exponent)
  return covariance + diagonal * np.eye(size)


def _gp_prior(rho, alpha):
  return stats.gamma(25, scale=1 / 4).logpdf(rho) + _normal(alpha, 0, 2)


def _gp_regr(data, rho, alpha, sigma):
  covariance = _covariance(data, rho, alpha, sigma)
  law = stats.multivariate_normal(np.zeros(len(data['y'])), covariance)
  prior = _gp_prior(rho, alpha) + _normal(sigma, 0, 1)
  return prior + law.logpdf(data['y'])


def _gp_pois_regr(data, rho, alpha, f_tilde):
  f = np.linalg.cholesky(_covariance(data, rho, alpha, 1e-10)) @ f_tilde
  total = _gp_prior(rho, alpha) + _normal(f_tilde, 0, 1)
  return total + np.sum(stats.poisson(np.exp(f)).logpmf(data['k']))


def _lotka_volterra(data, theta, z_init, sigma):
  def slope(t, z):
    u, v = z
    return [(theta[0] - theta[1] * v) * u, (-theta[2] + theta[3] * u) * v]

  z = integrate.solve_ivp(
    slope, (0, 20), z_init, t_eval=data['ts'], rtol=1e-10, atol=1e-10
  ).y.T
  total = _normal(theta[[0, 2]], 1, 0.5) + _normal(theta[[1, 3]], 0.05, 0.05)
  for k in range(2):
    total += stats.lognorm(1, scale=np.exp(-1)).logpdf(sigma[k])
    total += stats.lognorm(1, scale=10).logpdf(z_init[k])
    first = stats.lognorm(sigma[k], scale=z_init[k])
    total += first.logpdf(data['y_init'][k])
    total += np.sum(
      stats.lognorm(sigma[k], scale=z[:, k]).logpdf(data['y'][:, k])
    )
  return total


_AREA = _log_product('diam1', 'diam2')
_VOLUME = _log_product('diam1', 'diam2', 'canopy_height')
_SCORE, _SCHOOL, _IQ = _of('kid_score'), _of('mom_hs'), _of('mom_iq')
_Z_SCHOOL, _Z_IQ = _scaled('mom_hs'), _scaled('mom_iq')

# Other regressions of the collection have the same form.
TARGETS = {
  'arK': _ar_k,
  'blr': _blr,
  'diamonds': _diamonds,
  'eight_schools_noncentered': _eight_schools,
  'gp_pois_regr': _gp_pois_regr,
  'gp_regr': _gp_regr,
  'hmm_drive_0': _hmm_drive,
  'kidscore_interaction': lambda data, beta, sigma: (
    _flat_regression(_SCORE, _SCHOOL, _IQ, _product(_SCHOOL, _IQ))(
      data, beta, sigma
    )
    + _half_cauchy(sigma, 2.5)
  ),
  'kidscore_interaction_z': _flat_regression(
    _SCORE, _Z_SCHOOL, _Z_IQ, _product(_Z_SCHOOL, _Z_IQ)
  ),
  'kilpisjarvi': _kilpisjarvi,
  'logmesquite_logvas': _flat_regression(
    _log('weight'),
    _VOLUME,
    _AREA,
    _log_shape,
    _log('total_height'),
    _log('density'),
    _of('group'),
  ),
  'lotka_volterra': _lotka_volterra,
  'nes': _flat_regression(
    _of('partyid7'),
    _of('real_ideo'),
    _of('race_adj'),
    *(_is('age_discrete', level) for level in (2, 3, 4)),
    _of('educ1'),
    _of('gender'),
    _of('income'),
  ),
}
