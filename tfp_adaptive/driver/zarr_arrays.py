"""Makes, opens and writes arrays of draws in Zarr, by blocks of rows.

A block is one file of each array, a shard in Zarr's words. It consists of
chunks, which are groups of coordinates. Each group can be read alone.
"""

import math
import pathlib
import warnings

import numpy as np

from tfp_adaptive.driver import convergence

_COORDINATE_ROWS = 2**20
# Chunks of zeros are written too, because otherwise their files would be
# missing, as if lost.
_CONFIG = {'array.write_empty_chunks': True}


class Damaged(ValueError):
  """The message says why an array cannot be opened."""


def check_installed():
  """Raises an ImportError if Zarr is missing or too old."""
  _zarr()


def make_group(folder, attributes=None):
  """Makes a new group without arrays; an earlier group there is removed."""
  _zarr().open_group(folder, mode='w', zarr_format=3, attributes=attributes)


def consolidate(folder):
  """Writes all metadata of a group to one file, so that it opens faster."""
  with warnings.catch_warnings():
    # Zarr 3 warns that some readers may not use this file. Such readers use the
    # metadata of each array.
    warnings.simplefilter('ignore', UserWarning)
    _zarr().consolidate_metadata(_zarr().storage.LocalStore(folder))


class BlockArray:
  """One array on disk, [draws, ...] or [chains, draws, event...]."""

  def __init__(self, array, folder, block_size, axis):
    self.array = array
    self._folder = folder
    self._block_size = block_size
    self._axis = axis

  @classmethod
  def make(cls, folder, shape, dtype, block_size, dims=None):
    """Makes an array without rows, and the coordinates of its dimensions.

    The shape is [chains, draws, event...], and `dims` are the names of the
    event's dimensions. Without `dims` the shape is [draws, ...], and the event
    is one chunk. The last part of `folder` is the name of the array.
    """
    axis = 0 if dims is None else 1
    rows = max(1, min(block_size, shape[axis]))
    # Chunks have at least one number on each axis, even if the array is empty.
    events = [max(1, size) for size in shape[axis + 1 :]]
    widths = events if dims is None else _widths(shape)
    whole = [-(-size // w) * w for size, w in zip(events, widths)]
    file = (*shape[:axis], rows, *whole)
    chunk = (*shape[:axis], rows, *widths)
    names = None if dims is None else ('chain', 'draw', *dims)
    array = _make(
      folder,
      shape=tuple(shape),
      dtype=dtype,
      chunks=chunk,
      shards=None if file == chunk else file,
      # Rows of blocks that the run has not reached are NaN, or 0 for integers.
      fill_value=dtype.type(np.nan if dtype.kind in 'fc' else 0),
      dimension_names=names,
    )
    for name, size in zip(names or (), shape):
      _make_coordinate(folder.parent / name, size)
    return cls(array, folder, block_size, axis)

  @classmethod
  def open(cls, folder, block_size, has_chains):
    """Opens an array that `make` made; raises `Damaged` if that fails."""
    try:
      with _zarr().config.set(_CONFIG):
        array = _zarr().open_array(folder, mode='r+')
    except (OSError, ValueError, KeyError) as error:
      raise Damaged(f'it cannot be opened ({error})') from error
    return cls(array, folder, block_size, int(has_chains))

  @property
  def shape(self):
    return self.array.shape

  @property
  def dtype(self):
    return self.array.dtype

  @property
  def chunks(self):
    return self.array.chunks

  def __getitem__(self, where):
    """Returns the numpy array for slices, one for each leading axis.

    If a file of these rows is missing, it raises an OSError. Zarr itself would
    return fill values.
    """
    rows = range(self.shape[self._axis])[where[self._axis]]
    if rows:
      first, last = rows[0] // self._block_size, rows[-1] // self._block_size
      for number in range(first, last + 1):
        if not self.file(number).is_file():
          raise FileNotFoundError(f'{self.file(number)} is missing')
    return np.asarray(self.array[where])

  def file(self, number):
    """Returns the path of a block's file."""
    place = [0] * len(self.array.shape)
    place[self._axis] = number
    return self._folder / self.array.metadata.encode_chunk_key(tuple(place))

  def write(self, number, rows):
    """Writes a block; the last block may have fewer draws."""
    path, start = self.file(number), number * self._block_size
    # A run that was killed may have left a part of the file.
    path.unlink(missing_ok=True)
    where = (slice(start, start + rows.shape[self._axis]),)
    self.array[(slice(None),) * self._axis + where] = rows


def _zarr():
  try:
    import zarr
  except ImportError as error:
    raise ImportError(
      '`draws_dir` writes with Zarr: `pip install "zarr>=3"`. Without it draws '
      'are kept in memory, and `checkpoint_dir` keeps them from being lost.'
    ) from error
  if int(zarr.__version__.split('.')[0]) < 3:
    raise ImportError(
      f'`draws_dir` needs Zarr 3, but found {zarr.__version__}: '
      '`pip install "zarr>=3"`.'
    )
  return zarr


def _make(folder, **options):
  codecs = _zarr().codecs
  with _zarr().config.set(_CONFIG):
    return _zarr().create_array(
      folder,
      zarr_format=3,
      # The checksum detects damaged draws when they are read.
      compressors=codecs.ZstdCodec(level=1, checksum=True),
      # An array has one folder, not one for every block.
      chunk_key_encoding=dict(name='default', separator='.'),
      overwrite=True,
      **options,
    )


def _widths(shape):
  """Returns the number of coordinates of a chunk along each axis of the event.

  A chunk has as many coordinates as `convergence.MOST_AT_ONCE` allows for all
  chains and draws. The last axes are filled first, so that coordinates of a
  chunk are adjacent in flat order.
  """
  most = max(1, convergence.MOST_AT_ONCE // max(1, math.prod(shape[:2])))
  widths = []
  for size in reversed(shape[2:]):
    size = max(1, size)
    # Chunks have about equal widths, because Zarr pads the last chunk.
    width = -(-size // -(-size // min(size, most)))
    widths.insert(0, width)
    most = most // width if width == size else 1
  return widths


def _make_coordinate(folder, size):
  if pathlib.Path(folder).exists():
    return
  rows = max(1, min(size, _COORDINATE_ROWS))
  array = _make(
    folder,
    shape=(size,),
    dtype=np.dtype(np.int64),
    chunks=(rows,),
    dimension_names=(folder.name,),
  )
  for start in range(0, size, rows):
    end = min(size, start + rows)
    array[start:end] = np.arange(start, end)
