"""What a config file may hold: small trees of what JSON can hold."""

import pytest
import yaml

from experiments.papers import config as configs
from experiments.run import yaml_files
from experiments.run.errors import ConfigError

VALUES = {
  'name': 'small',
  'target': {'name': 'gaussian_2d', 'rho': 0.5},
  'methods': [{'name': 'mala'}, {'name': 'hmc', 'num_leapfrog_steps': 3}],
  'num_adaptation_steps': 10,
  'num_results': 20,
}
TEXT = yaml.safe_dump(VALUES)


@pytest.fixture
def refusal(tmp_path):
  """Returns a function from a file's content to the message against it."""

  def refusal(content, *overrides):
    path = tmp_path / 'small.yaml'
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
      configs.load_config(path, overrides)
    assert len(str(refused.value)) <= 600
    return str(refused.value)

  return refusal


@pytest.mark.parametrize(
  'content, word',
  [
    (TEXT.encode('utf-16'), 'not UTF-8'),
    (TEXT.replace('small', 'caf\u00e9').encode('cp1252'), 'not UTF-8'),
    (TEXT.replace('small', 'a\0b'), 'U+0000'),
    (TEXT.replace('small', '"a\\0b"'), 'U+0000'),
    (TEXT.replace('small', '"\\ud800"'), 'U+D800'),
  ],
)
def test_what_is_no_utf_8_text_is_refused(content, word, refusal):
  assert word in refusal(content)


def test_a_byte_order_mark_and_line_ends_of_windows_are_read(tmp_path):
  path = tmp_path / 'small.yaml'
  path.write_bytes(TEXT.replace('\n', '\r\n').encode('utf-8-sig'))
  assert yaml_files.load(path) == VALUES


@pytest.mark.parametrize(
  'nested', ['[' * 20000, '{a: ' * 3000, '\n  ' + '- ' * 3000 + 'x', '? ' * 900]
)
def test_deep_nesting_is_refused_by_its_line(nested, refusal):
  message = refusal(f'{TEXT}init: {nested}\n')
  assert 'deeper than 30 levels' in message or 'not allowed here' in message


@pytest.mark.parametrize(
  'number', ['9' * 5000, '1' + '0' * 25, '1_' * 2500 + '0', '-' + '9' * 5000]
)
def test_numbers_of_thousands_of_digits_are_refused(number, refusal):
  assert 'below 2^63' in refusal(f'{TEXT}num_chains: {number}\n')
  assert 'below 2^63' in refusal(TEXT, f'seed={number}')


@pytest.mark.parametrize('number', ['010', '0x10', '1:30', '2024-02-31', '0b_'])
def test_what_yaml_1_1_reads_as_another_number_is_text(number, refusal):
  assert f"num_chains: '{number}'" in refusal(f'{TEXT}num_chains: {number}\n')


@pytest.mark.parametrize(
  'line, word',
  [
    ('name: other', "the key 'name' is there twice"),
    ('1: x', 'keys must be text'),
    ('x: !!binary aGk=', 'the tag'),
    ('x: &a [*a]', 'an alias'),
    ('x: &a {y: 1}\nz:\n  <<: *a', 'an alias'),
    ('x: !!python/object/apply:os.getcwd []', 'the tag'),
  ],
)
def test_what_json_cannot_hold_is_refused(line, word, refusal):
  assert word in refusal(f'{TEXT}{line}\n')


def test_long_files_and_many_values_are_refused(refusal):
  assert '300000 bytes' in refusal(TEXT + '#' + 'x' * 400_000)
  assert '20000 values' in refusal(f'{TEXT}x: [{"1," * 30_000}]')


def test_very_many_methods_by_lists_are_refused_before_they_are_made(refusal):
  method = {
    'name': 'hmc',
    'num_leapfrog_steps': list(range(1, 5000)),
    'target_accept_prob': [0.3 + i / 1e5 for i in range(5000)],
  }
  message = refusal(yaml.safe_dump({**VALUES, 'methods': [method]}))
  assert 'more than 200' in message
