"""Every builder has a digest, and a digest tells one run from another."""

import inspect
import json

import pytest

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers import cases
from tests import fingerprints

_STORED = json.loads(fingerprints.FILE.read_text())


def _builders():
  for module in (tfpa, baselines):
    for name in module.__all__:
      value = getattr(module, name)
      if inspect.isfunction(value):
        first = next(iter(inspect.signature(value).parameters))
        if first in ('target_log_prob_fn', 'log_likelihood_fn'):
          yield name


def _digest(seed):
  kernel, start = fingerprints.built(cases.named('random_walk'))
  return fingerprints.digest(
    fingerprints.run(kernel, start, jit_compile=False, seed=seed)
  )


def test_every_builder_has_a_case_that_meets_the_contracts():
  met = {c.builder.__name__ for c in cases.CASES if c.group != 'digest'}
  assert met == set(_builders())


def test_names_of_cases_differ():
  names = [case.name for case in cases.CASES]
  assert len(set(names)) == len(names)


def test_every_case_is_stored():
  names = {name for name, *_ in fingerprints.selected()}
  assert names == set(_STORED['digests'])


@pytest.mark.full
def test_the_digest_of_a_seed_comes_again_and_that_of_another_does_not():
  first = _digest((1, 2))
  assert _digest((1, 2)) == first
  assert _digest((1, 3)) != first


def test_digests_of_another_machine_are_not_compared(tmp_path, capsys):
  stored = json.loads(json.dumps(_STORED))
  stored['environment']['tensorflow'] = '1.15'
  file = tmp_path / 'other.json'
  file.write_text(json.dumps(stored))
  assert fingerprints.check(file, only='') == 3
  said = capsys.readouterr().out
  assert 'NOT COMPARABLE' in said and 'tensorflow: stored 1.15' in said
