"""Labels are shown as they are; outputs are tried before any computing."""

import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import rich.console
import yaml
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.framework import config as configs
from experiments.framework import figures
from experiments.framework import outputs
from experiments.framework import runner
from experiments.framework import storage
from experiments.framework import tables
from experiments.framework.errors import ConfigError
from experiments.framework.labels import in_figure
from experiments.framework.labels import in_markdown
from experiments.studies import bench
from tests.experiments.framework.made_up_cells import write_cells

ODD = [r'$\foo$', '$x$', 'a|b', '[/b]', '[red]x', ':smile:', '<b>', 'a\\']
ODD += ['*a*', '..', '/', '\\$$', '&amp;', '#1', '%s', '{x}']
VALUES = {
  'name': 'small',
  'target': {'name': 'gaussian_2d', 'rho': 0.5},
  'methods': [{'name': 'mala', 'label': label} for label in ODD],
  'num_adaptation_steps': 10,
  'num_results': 20,
}


@pytest.mark.full
def test_odd_labels_go_through_a_run_s_end_and_stay_apart(tmp_path):
  few = VALUES['methods'][:3]
  config = configs.parse_config({**VALUES, 'methods': few})
  folder = storage.RunFolder.create(tmp_path / 'run', config)
  write_cells(np.random.default_rng(0), folder, config)
  runner.finish(folder, config, runner.make_plan(config).target)
  assert (folder.path / 'figures' / 'traces.png').is_file()
  assert folder.config().labels() == ODD[:3]
  assert [record['label'] for record in folder.records()] == ODD[:3]


def test_labels_that_slug_to_one_path_have_folders_of_their_own(tmp_path):
  config = configs.parse_config(VALUES)
  folder = storage.RunFolder(tmp_path)
  paths = {folder.cell_path(i, label, 0) for i, label in enumerate(ODD)}
  assert len(paths) == len(ODD) == len(config.methods)
  assert all(path.parents[2] == tmp_path for path in paths)


@pytest.mark.parametrize('label', ODD)
def test_figures_draw_a_label_as_it_is(label):
  with plt.rc_context({'svg.fonttype': 'none'}):
    figure, axes = figures._grid(1)
    axes[0].set_title(in_figure(label))
    text = io.StringIO()
    figure.savefig(text, format='svg')
  plt.close(figure)
  drawn = re.findall(r'<text[^>]*>([^<]*)</text>', text.getvalue())
  escaped = label.replace('&', '&amp;').replace('<', '&lt;')
  assert escaped.replace('>', '&gt;') in drawn


def test_without_escaping_a_label_is_taken_for_mathematics():
  figure, axes = figures._grid(1)
  axes[0].set_title(r'$\foo$')
  with pytest.raises(ValueError, match='foo'):
    figure.savefig(io.BytesIO())
  plt.close(figure)


@pytest.mark.parametrize('label', ODD)
def test_tables_show_a_label_as_it_is(label):
  rows = tables.join([{'status': 'failed', 'label': label, 'error': '[/b]'}])
  file = io.StringIO()
  console = rich.console.Console(width=500, file=file)
  console.print(tables.to_rich('small', rows))
  assert f'{label} ' in file.getvalue()
  assert f'{label} failed: [/b]' in file.getvalue()
  line = tables.to_markdown('small', rows).splitlines()[4]
  # Bars that part the cells are those without a backslash.
  cells = re.split(r'(?<!\\)\|', line)
  assert len(cells) == len(tables.HEADER) + 2
  assert re.sub(r'\\(.)', r'\1', cells[1].strip()) == label


def test_markdown_of_plain_labels_is_plain():
  for label in ('HMC-5, L=2', 'gadMALAf', 'pCN (0.3)', 'my_label'):
    assert in_markdown(label) == label


@pytest.fixture
def tiny(tmp_path, monkeypatch):
  """A config, and a run of it that fails at once."""
  path = tmp_path / 'tiny.yaml'
  values = {**VALUES, 'methods': [{'name': 'mala'}], 'init': {'kind': 'zeros'}}
  path.write_text(yaml.safe_dump(values))

  def fail(*unused):
    raise FloatingPointError('[/b] :smile:')

  monkeypatch.setattr(runner, 'run_cell', fail)
  return str(path)


@pytest.mark.parametrize('name', ['a[/b]', '[red]', ':smile:', 'a b'])
def test_a_folder_of_any_name_is_written_and_named(name, tiny, tmp_path):
  output = tmp_path / name
  found = CliRunner().invoke(app, ['run', tiny, '--output', str(output)])
  assert found.exit_code == 1, found.output
  assert f'Results: {output}' in found.output
  assert 'FloatingPointError: [/b] :smile:' in found.output
  file = tmp_path / f'{name.replace("/", "")}.md'
  made = ['report', str(output), '--output', str(file)]
  found = CliRunner().invoke(app, made)
  assert found.exit_code == 0 and f'Report: {file}' in found.output


@pytest.mark.parametrize('name', ['file', 'file/in', 'x' * 300, 'y' * 5000])
def test_a_folder_that_cannot_be_written_is_refused_before_the_run(
  name, tiny, tmp_path, monkeypatch
):
  (tmp_path / 'file').write_text('')
  monkeypatch.setattr(runner, 'run_plan', lambda *_: pytest.fail('it ran'))
  output = str(tmp_path / name)
  found = CliRunner().invoke(app, ['run', tiny, '--output', output])
  assert found.exit_code == 2
  assert 'cannot be written' in found.stderr
  assert len(found.stderr) <= 600


@pytest.mark.parametrize('name', ['', 'none/x.json', 'file/x.json', 'x' * 300])
def test_a_file_that_cannot_be_written_is_refused_before_computing(
  name, tmp_path, monkeypatch
):
  (tmp_path / 'file').write_text('')
  monkeypatch.setattr(bench, 'measure', lambda **_: pytest.fail('it ran'))
  output = str(tmp_path / name)
  found = CliRunner().invoke(app, ['bench', '--output', output])
  assert found.exit_code == 2
  with pytest.raises(ConfigError, match='output file'):
    outputs.check_file(output)


def test_trying_an_output_leaves_nothing_behind(tmp_path):
  kept = tmp_path / 'kept'
  kept.write_text('as it was')
  outputs.check_file(kept)
  outputs.check_file(tmp_path / 'new')
  outputs.check_folder(tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == ['kept']
  assert kept.read_text() == 'as it was'
