"""Broken inputs are refused in one sentence; the fuzzer notices if not."""

import itertools
import time

import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.framework import data
from experiments.fuzz import run
from experiments.fuzz.case import ACCEPT
from experiments.fuzz.case import Case
from experiments.fuzz.case import EITHER
from experiments.fuzz.case import REFUSE
from experiments.papers import explain
from experiments.run.errors import ConfigError


@pytest.mark.full
def test_a_hundred_broken_inputs_are_read_or_refused_as_they_should():
  outcomes = run.run(seed=7, num=100)
  assert [outcome for outcome in outcomes if outcome.faults] == []
  assert {outcome.kind for outcome in outcomes} == set(run.KINDS)
  # Both occur: neither a reader that takes all nor one that takes none is good.
  num_refused = sum(outcome.is_refused for outcome in outcomes)
  assert 50 < num_refused < 95


def test_an_input_is_the_same_whenever_it_is_asked_for():
  one, again = (run.one(3, 5)._replace(seconds=0.0) for _ in range(2))
  assert one == again
  assert run.one(4, 5).given != one.given


class _Fake:
  """A kind of input with one outcome."""

  def __init__(self, expected, load):
    self._case = Case('fake', expected, '', load)

  def make(self, rng, folder):
    del rng, folder
    return self._case


def _refuse(text):
  raise ConfigError(text)


@pytest.mark.parametrize(
  'expected, load, faults',
  [
    (REFUSE, lambda: _refuse('no'), ()),
    (EITHER, lambda: _refuse('no'), ()),
    (ACCEPT, lambda: None, ()),
    (EITHER, lambda: None, ()),
    (ACCEPT, lambda: _refuse('no'), ('wrong refusal',)),
    (REFUSE, lambda: None, ('wrong accept',)),
    (ACCEPT, lambda: 'another config', ('wrong accept',)),
    (EITHER, lambda: 'another config', ('wrong accept',)),
    (REFUSE, lambda: _refuse('x' * 601), ('long message',)),
    (REFUSE, lambda: {}['x'], ('traceback',)),
    (REFUSE, lambda: int('x'), ('traceback',)),
  ],
)
def test_every_fault_is_told_from_the_others(
  expected, load, faults, monkeypatch
):
  kinds = dict.fromkeys(run.KINDS, _Fake(expected, load))
  monkeypatch.setattr(run, 'KINDS', kinds)
  (outcome,) = run.run(0, 1)
  assert outcome.faults == faults
  assert run.summary([outcome])['all']['accepted'] == (
    not faults and not outcome.is_refused
  )


@pytest.mark.parametrize(
  'load, limit',
  [
    (lambda: next(k for k in itertools.count() if k < 0), 'MAX_SECONDS'),
    (lambda: time.sleep(60), 'MAX_CLOCK'),
  ],
)
def test_a_reader_that_does_not_end_is_stopped(load, limit, monkeypatch):
  kinds = dict.fromkeys(run.KINDS, _Fake(EITHER, load))
  monkeypatch.setattr(run, 'KINDS', kinds)
  monkeypatch.setattr(run, limit, 0.5)
  assert run.one(0, 0).faults == ('hang',)


def test_a_reader_that_takes_half_a_gigabyte_is_reported(monkeypatch):
  kinds = dict.fromkeys(run.KINDS, _Fake(EITHER, lambda: None))
  monkeypatch.setattr(run, 'KINDS', kinds)
  peaks = iter([100_000, 200_000, 100_000, 600_000])
  monkeypatch.setattr(run, '_peak', lambda: next(peaks))
  assert run.one(0, 0).faults == ()
  assert run.one(0, 1).faults == ('memory',)


def _faults(kind, num, monkeypatch):
  monkeypatch.setattr(run, 'KINDS', dict.fromkeys(run.KINDS, run.KINDS[kind]))
  outcomes = run.run(seed=1, num=num)
  return {fault for outcome in outcomes for fault in outcome.faults}


def test_a_reader_of_configs_that_checks_no_names_is_reported(monkeypatch):
  monkeypatch.setattr(explain, 'check_names', lambda values: None)
  monkeypatch.setattr(explain, 'shown', repr)
  found = _faults('configs', 60, monkeypatch)
  assert found & {'traceback', 'long message'}


def test_a_reader_of_data_that_rounds_labels_is_reported(monkeypatch):
  monkeypatch.setattr(
    data, '_checked', lambda name, x, y, origin: (x, y.astype(int))
  )
  assert 'wrong accept' in _faults('data', 30, monkeypatch)


def test_the_command_prints_counts_and_repeats_one_input(tmp_path):
  output = tmp_path / 'fuzz.json'
  command = ['fuzz', '--seed', '3', '--num', '3', '--output', str(output)]
  found = CliRunner().invoke(app, command)
  assert found.exit_code == 0, found.output
  assert 'wrong accept' in found.output
  assert '"inputs": 3' in output.read_text()
  one = CliRunner().invoke(app, ['fuzz', '--seed', '3', '--only', '1'])
  assert one.exit_code == 0 and 'mutation: ' in one.output


def test_the_command_fails_where_there_is_a_fault(monkeypatch):
  kinds = dict.fromkeys(run.KINDS, _Fake(REFUSE, lambda: None))
  monkeypatch.setattr(run, 'KINDS', kinds)
  found = CliRunner().invoke(app, ['fuzz', '--num', '2'])
  assert found.exit_code == 1
  assert '--only 1' in found.output
